export {
  DEFAULT_ETCD_PREFIX,
  checkEtcdSettings,
  listRemotePlaintext,
  parseEtcdEndpoints,
} from './etcd-settings.js';
export type { EtcdSettings } from './etcd-settings.js';
export { readEtcdOptions } from './read-etcd-options.js';
