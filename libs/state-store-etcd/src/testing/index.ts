export { EtcdCluster } from './etcd-cluster.js';
export type { EtcdClusterOptions } from './etcd-cluster.js';
export { EtcdMember } from './etcd-member.js';
export type { EtcdMemberOptions } from './etcd-member.js';
export { EtcdCertificates, readCertificate } from './certificates.js';
export type { CertificateFiles } from './certificates.js';
