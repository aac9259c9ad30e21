/**
 * Keys and certificate requests without the packages that create certificates: for agents and
 * commands.
 */
export { createKeyAndCsr, readCsr } from '../x509/csr.js';
export type { CsrKey, KeyAndCsr } from '../x509/csr.js';
