// A part of the page that is rendered only when something in it changes. NiceGUI renders all plain elements of a
// page as one, with each change of any: here the slot is called by a component of its own, whose properties stay
// the same, so that Vue leaves it alone.
import { h } from "vue";

const Content = {
  props: ["tag", "draw", "children"],
  render() {
    return h(this.tag, this.draw());
  },
};

export default {
  props: ["as", "children"],
  methods: {
    draw() {
      return this.$slots.default?.();
    },
  },
  render() {
    return h(Content, { tag: this.as, draw: this.draw, children: this.children });
  },
};
