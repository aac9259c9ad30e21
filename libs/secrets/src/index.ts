export { openSecret, reEncryptSecret, sealSecret } from './envelope.js';
export type { Envelope, MasterKey, SecretContext } from './envelope.js';
export { createKeyEncryption, createPassphraseEncryption } from './key-encryption.js';
export type { KeyEncryption, WrappedKey } from './key-encryption.js';
export { encodeValues } from './values.js';
export type { SecretData } from './values.js';
export { KEY_BYTES, open, seal } from './aead.js';
export {
  CERTIFICATE_ENTRY,
  MAX_CERTIFICATE_BYTES,
  PRIVATE_KEY_ENTRY,
  openCertificatePair,
  requireCertificatePair,
} from './certificate-pair.js';
export type { CertificatePair, OpenCertificatePair, PairNames } from './certificate-pair.js';
