export { HistoryRecorder } from './history.js';
export type { RecordedCall } from './history.js';

// Search for an order: for any object with a sequential model, such as an API.
export { checkLinearizable } from './check-linearizable.js';
export type { CheckOptions, LinearizabilityResult, SequentialModel } from './check-linearizable.js';
export { createRegisterModel } from './register-model.js';
export type { RegisterInput, RegisterOutput } from './register-model.js';

// Order by revisions: for a StateStore.
export { checkStoreHistory } from './check-store-history.js';
export { checkWatch } from './check-watch.js';
export type { RecordedWatch } from './check-watch.js';
export { StoreLog, readStoreLog } from './store-log.js';
export type { KeyVersion } from './store-log.js';
export { recordStoreCalls } from './store-history.js';
export type { StoreCall, StoreInput, StoreOutput } from './store-history.js';
export { runConcurrentClients } from './concurrent-clients.js';
export type { ConcurrentClientsOptions } from './concurrent-clients.js';
