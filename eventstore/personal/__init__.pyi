from eventstore.personal.marks import (
    Personal as Personal,
    Sealed as Sealed,
)
