import type { StateStore } from '@cloudless/state-store';
import type { StoreCallMarks, WatchedCall } from './store-call-marks.js';

/** Returns a store that marks each write and each renewal of a lease while it runs. */
export function watchStoreCalls(store: StateStore, marks: StoreCallMarks): StateStore {
  const watch = async <Result>(call: WatchedCall, run: () => Promise<Result>): Promise<Result> => {
    marks.begin(call);
    try {
      return await run();
    } finally {
      marks.end(call);
    }
  };
  return {
    get: (key) => store.get(key),
    range: (request) => store.range(request),
    txn: (compares, operations) => watch('write', () => store.txn(compares, operations)),
    watch: (request) => store.watch(request),
    revision: () => store.revision(),
    grantLease: (ttlMs) => watch('lease', () => store.grantLease(ttlMs)),
    keepAlive: (lease) => watch('lease', () => store.keepAlive(lease)),
    revokeLease: (lease) => watch('lease', () => store.revokeLease(lease)),
    close: () => store.close(),
  };
}
