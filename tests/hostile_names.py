"""More than two hundred texts that somebody may try as a name."""

from __future__ import annotations

_SQL = [
    "'; drop table events; --",
    '"; drop schema public cascade; --',
    "x' or '1'='1",
    'x" or "1"="1',
    "') ; delete from events; --",
    "$$; select pg_sleep(9); $$",
    "1; copy events to program 'sh'",
    'events"; truncate events; --',
    "x'||(select version())||'",
    "/* */ union select 1 --",
    "\\'; drop table events; --",
    "events;vacuum",
    "U&'\\0061'",
    "E'\\x41'",
    "`events`",
    "[events]",
]
_FORMATS = """
%s %(name)s %b {0} {__class__} ${jndi:ldap://x} $(reboot) `reboot` #{7*7} {{7*7}} %n%n%n :name ? $1 @x \\g<0>
""".split()
_PATHS = "../../etc/passwd .. . / //x C:\\x ~ a/../b %2e%2e%2f file:///etc/passwd \\\\host\\x".split()
_CONTROL = [f"a{chr(code)}b" for code in [*range(32), 127, *range(128, 160)]]
_UNICODE = [
    *"\u200b\u2028\u2029áﬁＡİıßﷺ𝔘🔑\U0010ffff\ue000\ud800\udfff\u0000",
    *"a\u200bb \u202eabc \ufeffa a\u0301 a\ud83d ключ 鍵 مفتاح".split(" "),
    "e\u0301" * 40,
]
_SPACES = ["", " ", "\t", "\n", "a b", " a", "a ", "\u00a0", "\u3000", "\r\n", "\x0b", "\x0c"]
_DASHES = """
- -- a--b -a a- @ a@1 a@-1 @0 a-b@3 : a:b | , ; = & # * <x> ' "
""".split()
_RESERVED = """
select user table null true default pg_catalog information_schema public events __consumer_offsets
factfold.schemas con nul None NaN 0 -1 1e9 0x41
""".split()
_LONG = ["x" * length for length in (40, 63, 64, 99, 100, 101, 249, 255, 256, 1_000, 10_000)]
_MARKUP = ["<script>", "</x>", "<!--", "]]>", "&lt;", "\x1b[31mred", '{"a": 1}', "[1]", "!!python/object", "- a: b"]

HOSTILE = [*_SQL, *_FORMATS, *_PATHS, *_CONTROL, *_UNICODE, *_SPACES, *_DASHES, *_RESERVED, *_LONG, *_MARKUP]
