export { openEtcdStateStore } from './store/etcd-state-store.js';
export type { EtcdStateStore, EtcdStateStoreOptions } from './store/etcd-state-store.js';
export { restoreEtcdStateStore } from './restore/restore-etcd-store.js';
export type { EtcdRestoreOptions } from './restore/restore-etcd-store.js';
export { ETCD_PREFIX } from './store/key-space.js';
export type { EtcdTls } from './client/endpoint.js';
