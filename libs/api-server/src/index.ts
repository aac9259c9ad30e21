export { createApiServer, createReadServer } from './handlers.js';
export type { ApiServer, ReadServer } from './handlers.js';
export { RoleRouter } from './roles/role-router.js';
export type { RolePart, RoleRouterDeps } from './roles/role-router.js';
export { LivenessMirror } from './roles/liveness-mirror.js';
export type { LivenessMirrorDeps } from './roles/liveness-mirror.js';
export { createLeaderDirectory } from './roles/leader-directory.js';
export type { KnownLeader, LeaderDirectory } from './roles/leader-directory.js';
export { putDefaultPolicies } from './policy/default-policies.js';
export { MAX_VIEW_AGE_MS } from './roles/stale-view.js';
export { getServedBy, SERVED_SERVICES } from './roles/served-by.js';
export type { ServedBy } from './roles/served-by.js';
export type {
  ApiServerDeps,
  LivenessView,
  ReadDeps,
  CallConnection,
  NodeLiveness,
  WorkloadPresenterPort,
  NetworkFeedPort,
  NetworkFeedReader,
  NodeAllocations,
  DryRunPort,
  SessionTimings,
} from './ports.js';
export { NodeCertificateUseRecorder } from './identity/node-certificate-use-recorder.js';
export { SecretKeys } from './secret/secret-keys.js';
export type { SecretKeysOptions } from './secret/secret-keys.js';
export type { SecretValues, SecretVersionValues } from './secret/secret-values.js';
export { PROTOCOL_MAX, PROTOCOL_MIN } from './session/node-admission.js';
export { Authenticator } from './access/authenticator.js';
export type { ReportRefusal } from './access/refusal-log.js';
export type {
  AuthenticatedConnection,
  AuthenticatorDeps,
  IncomingCall,
} from './access/authenticator.js';
export type { ApiCaller, CallCredential, Caller } from './access/caller.js';
export type { CertificateFacts, RenewedCertificate } from './access/certificate-authentication.js';
export type {
  CertificateOrder,
  CertificateVerifier,
  IdentityPort,
  IssuedCertificate,
  TrustedRoots,
} from './access/identity-port.js';
