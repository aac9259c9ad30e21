export { createApiServer } from './handlers.js';
export type { ApiServer } from './handlers.js';
export type {
  ApiServerDeps,
  CallConnection,
  NodeLiveness,
  WorkloadPresenterPort,
  NodeAllocations,
  DryRunPort,
  SessionTimings,
} from './ports.js';
export { NodeCertificateUseRecorder } from './identity/node-certificate-use-recorder.js';
export { PROTOCOL_MAX, PROTOCOL_MIN } from './session/node-admission.js';
export { Authenticator } from './access/authenticator.js';
export type {
  AuthenticatedConnection,
  AuthenticatorDeps,
  IncomingCall,
} from './access/authenticator.js';
export type { ApiCaller, CallCredential, Caller } from './access/caller.js';
export type { CertificateFacts } from './access/certificate-authentication.js';
export type {
  CertificateOrder,
  CertificateVerifier,
  IdentityPort,
  IssuedCertificate,
  TrustedRoots,
} from './access/identity-port.js';
