export { createLeakSearch } from './leak-search.js';
export { CERTIFICATE_MISTAKES, TestAuthority, importKey } from './test-authority.js';
export type { CertificateMistake, TestCredential } from './test-authority.js';
