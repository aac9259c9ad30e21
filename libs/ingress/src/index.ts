export { createIngress } from './server/ingress.js';
export type { Ingress, IngressOptions, IngressStatus } from './server/ingress.js';
export type { AccessLine } from './server/request-handler.js';
export { toRouteKey } from './model.js';
export type {
  IngressCertificate,
  IngressRoute,
  IngressRule,
  IngressService,
  IngressTls,
  IngressTlsFiles,
  IngressTlsSecret,
} from './model.js';
export type { ChosenBackend, IngressBackends, IngressClient } from './backend/backends.js';
