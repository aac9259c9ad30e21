export { MAX_KEY_BYTES, MAX_TXN_BYTES, MAX_TXN_OPERATIONS, RevisionConflictError } from './state-store.js';
export type {
  Change,
  ChangeBatch,
  Committed,
  Compare,
  LeaseId,
  Operation,
  RangePage,
  RangeRequest,
  Revision,
  StateStore,
  StoreEntry,
} from './state-store.js';
