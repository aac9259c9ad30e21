export { toRouteKey } from './model.js';
export type { IngressRoute, IngressRule, IngressService, IngressTls } from './model.js';
