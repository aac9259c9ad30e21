export { createKeyAndCsr, readCsr } from './csr.js';
export type { CsrKey, KeyAndCsr } from './csr.js';
