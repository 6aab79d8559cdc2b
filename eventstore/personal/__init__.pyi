from eventstore.personal.marks import Sealed as Sealed
