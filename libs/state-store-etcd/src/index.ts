export { openEtcdStateStore } from './store/etcd-state-store.js';
export type { EtcdStateStore, EtcdStateStoreOptions } from './store/etcd-state-store.js';
export { ETCD_PREFIX } from './store/key-space.js';
export type { EtcdTls } from './client/endpoint.js';
