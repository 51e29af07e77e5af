"""Add up what the pages of a Parquet file expand to, by the header of each page.

pyarrow allocates and fills as much as the header of a page says, whatever the footer says: a file of 120 kB
took 3.8 GB. Footer and headers are structures of Thrift's compact protocol, read as far as needed here.

Where there is a C compiler, this source is compiled (``_page_sizes.pxd`` has its C types): in Python it takes
almost as long as reading a small packet.
"""

from __future__ import annotations

from sfapp.errors import PacketError

_DEPTH = 16
"""Parquet nests structures less deep."""

MAX_FOOTER = 8 << 20
"""Size limit of a footer, bytes: 4,096 columns take 1 MB."""

MAX_PAGES = 1 << 17
"""Number of pages that are added up."""


def expanded_pages(data: bytes) -> int:
    """Return the bytes that all pages expand to, by their headers.

    Raises:
        PacketError: the footer or a header is damaged.
    """
    end = len(data) - 8
    size = int.from_bytes(data[end : end + 4], "little")
    if size > MAX_FOOTER:
        raise PacketError(f"the footer has {size:,} bytes, more than {MAX_FOOTER:,}")
    try:
        return PageReader(data).read_footer(end - size)
    except (IndexError, OverflowError) as error:
        raise PacketError("the footer or the header of a page is damaged") from error


class PageReader:
    """Reader of the structures in a file that lead to its pages.

    Numbers of fields are those of parquet.thrift; numbers of types those of the compact protocol: 1 and 2 are
    the values of a boolean, 3 a byte, 4 to 6 integers, 7 a double, 8 a text, 9 a list, 12 a structure.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._size = len(data)
        self._at = 0
        self._kind = 0  # type of the field that was read last
        self._pages = 0
        self._walked = 0  # bytes of all pages, each of which is in one chunk only
        self._expanded = 0

    def read_footer(self, at: int) -> int:
        """Return the bytes that all pages expand to, given where the footer begins.

        Raises:
            IndexError: the file ends within a structure, or one is damaged.
            PacketError: there are too many pages, or they overlap.
        """
        self._go_to(at)
        field = self._field(0)
        while field:
            if field == 4 and self._kind == 9:  # row groups
                for _ in range(self._count()):
                    self._row_group()
            else:
                self._skip(self._kind, 0)
            field = self._field(field)
        return self._expanded

    def _row_group(self) -> None:
        field = self._field(0)
        while field:
            if field == 1 and self._kind == 9:  # columns
                for _ in range(self._count()):
                    self._column()
            else:
                self._skip(self._kind, 0)
            field = self._field(field)

    def _column(self) -> None:
        field = self._field(0)
        while field:
            if field == 3 and self._kind == 12:  # metadata of the chunk
                self._chunk()
            else:
                self._skip(self._kind, 0)
            field = self._field(field)

    def _chunk(self) -> None:
        compressed = data_page = dictionary_page = 0
        field = self._field(0)
        while field:
            if field == 7:
                compressed = self._integer()
            elif field == 9:
                data_page = self._integer()
            elif field == 11:
                dictionary_page = self._integer()
            else:
                self._skip(self._kind, 0)
            field = self._field(field)
        after = self._at
        begin = data_page
        if 0 < dictionary_page < data_page or data_page <= 0:  # A column without rows has no data page.
            begin = dictionary_page
        self._go_to(begin)
        while self._at - begin < compressed:
            self._page()
        self._at = after

    def _page(self) -> None:
        """Add what a page expands to, and go to the next."""
        begin = self._at
        expanded = compressed = 0
        field = self._field(0)
        while field:
            if field == 2:
                expanded = self._integer()
            elif field == 3:
                compressed = self._integer()
            else:
                self._skip(self._kind, 0)
            field = self._field(field)
        if not (0 <= expanded < 1 << 31 and 0 <= compressed < 1 << 31):
            raise IndexError("the size of a page is out of range")
        self._pages += 1
        if self._pages > MAX_PAGES:
            raise PacketError(f"the file has more than {MAX_PAGES:,} pages")
        self._expanded += expanded
        self._move(compressed)
        self._walked += self._at - begin
        if self._walked > self._size:
            raise PacketError("the pages of the columns overlap")

    # ---- Thrift's compact protocol ----------------------------------------------------------------

    def _field(self, before: int) -> int:
        """Return the number of a structure's next field, given that of the field before; 0 at its end."""
        head = self._byte()
        if not head:
            return 0
        self._kind = head & 15
        number = before + (head >> 4) if head >> 4 else self._integer()
        if not 0 < number < 1 << 15:
            raise IndexError("the number of a field is out of range")
        return number

    def _count(self) -> int:
        """Return the number of elements of a list, whose type is ``_kind`` then."""
        head = self._byte()
        self._kind = head & 15
        return head >> 4 if head >> 4 < 15 else self._length()

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _DEPTH:
            raise IndexError("nested too deeply")
        if kind == 12:
            field = self._field(0)
            while field:
                self._skip(self._kind, depth + 1)
                field = self._field(field)
        elif kind == 8:
            self._move(self._length())
        elif 4 <= kind <= 6:
            self._integer()
        elif kind == 9:
            count = self._count()
            inner = self._kind
            for _ in range(count):
                if inner <= 2:  # A boolean in a list is a byte of its own.
                    self._move(1)
                else:
                    self._skip(inner, depth + 1)
        elif kind == 3:
            self._move(1)
        elif kind == 7:
            self._move(8)
        elif kind > 2:
            raise IndexError("a type that is in no structure of Parquet")

    def _integer(self) -> int:
        """Read a zigzag integer of variable length."""
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _length(self) -> int:
        value = self._unsigned()
        if value > self._size:
            raise IndexError("longer than the file")
        return value

    def _unsigned(self) -> int:
        byte = self._byte()
        value, shift = byte & 127, 7
        while byte > 127:
            if shift > 56:
                raise IndexError("an integer of more than 63 bits")
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
        return value

    def _byte(self) -> int:
        at = self._at
        if at >= self._size:
            raise IndexError("the file ends here")
        self._at = at + 1
        return self._data[at]

    def _move(self, count: int) -> None:
        self._go_to(self._at + count)

    def _go_to(self, at: int) -> None:
        if not 0 <= at <= self._size:
            raise IndexError("outside the file")
        self._at = at
