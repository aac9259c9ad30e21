export { EtcdClient, MAINTENANCE, READ, RENEW, WRITE } from './etcd-client.js';
export type { CallPolicy, CallSettings, EtcdClientOptions } from './etcd-client.js';
