export { CertificateAuthority } from './certificate-authority.js';
export type {
  AuthorityPems,
  CertificateChain,
  CertificateRequest,
} from './certificate-authority.js';
export { createKeyAndCsr, readCsr } from './csr.js';
export type { CsrKey, KeyAndCsr } from './csr.js';
export { PeerVerifier, hashRoot } from './peer-verifier.js';
export type { AllowedPeers, PeerIdentity } from './peer-verifier.js';
export { decodeCertificates } from './pem.js';
export { encodeCertificates, readChain } from './read-chain.js';
export type { StoredChain } from './read-chain.js';
export { createServerCertificate, splitHosts } from './server-certificate.js';
export type { KeyAndChain } from './server-certificate.js';
