import { clone, create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { InvalidInputError, type Violation } from '@cloudless/base';
import {
  Port_Protocol as Protocol,
  RouteLimitsSchema,
  RouteSpecSchema,
  type RouteSpec,
  type ServicePort,
  type ServiceSpec,
} from '../gen.js';
import { findSecretNameProblem } from '../spec/files-rules.js';
import { resolveServicePortName } from './service-defaults.js';

/** Defaults of absent fields of routes. */
export const ROUTE_DEFAULTS = {
  pathPrefix: '/',
  /** Milliseconds until a response begins. */
  timeoutMs: 60_000,
  retries: 1,
  maxHeaderBytes: 16_384,
} as const;

/** Returns a path prefix without a trailing `/`; `/` for an empty one. */
export function normalizePathPrefix(pathPrefix: string): string {
  return pathPrefix.replace(/\/+$/, '') || ROUTE_DEFAULTS.pathPrefix;
}

/** Returns a copy of the spec with a default in every absent field. Idempotent. */
export function withRouteDefaults(spec: RouteSpec): RouteSpec {
  const full = clone(RouteSpecSchema, spec);
  for (const rule of full.rules) {
    rule.pathPrefix = normalizePathPrefix(rule.pathPrefix);
    rule.timeout ??= durationFromMs(ROUTE_DEFAULTS.timeoutMs);
    rule.retries ??= ROUTE_DEFAULTS.retries;
  }
  full.limits ??= create(RouteLimitsSchema);
  full.limits.maxHeaderBytes ??= ROUTE_DEFAULTS.maxHeaderBytes;
  return full;
}

/**
 * Returns the port of a service that a rule names by number or name; undefined when the service has
 * no such TCP port.
 */
export function findRoutePort(
  { ports }: Pick<ServiceSpec, 'ports'>,
  port: string,
): ServicePort | undefined {
  const tcp = ports.filter(({ protocol }) => protocol === Protocol.TCP);
  return (
    tcp.find((each) => String(each.port) === port) ??
    tcp.find((each) => resolveServicePortName(each) === port)
  );
}

/**
 * Validates a route beyond the rules of its proto.
 * @throws {@link InvalidInputError} with every violation, whose paths start with `spec`.
 */
export function checkRoute(spec: RouteSpec): void {
  const violations = [...validateHosts(spec), ...validateRules(spec), ...validateTls(spec)];
  if (violations.length > 0) throw new InvalidInputError(violations);
}

/** An exact name or one leading wildcard label; the last label is no number, so no IP address. */
const HOST =
  /^(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*(?!\d+$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

function* validateHosts({ hosts }: RouteSpec): Generator<Violation> {
  for (const [index, host] of hosts.entries()) {
    const field = `spec.hosts[${index}]`;
    if (!HOST.test(host)) {
      const message = `${JSON.stringify(host)} is not a host name; write one in lower case without a port, such as shop.example.com, or *.example.com for all names one label below`;
      yield { field, message };
    } else if (hosts.indexOf(host) !== index) yield { field, message: `"${host}" is used twice` };
  }
}

function* validateRules({ rules }: RouteSpec): Generator<Violation> {
  if (rules.length === 0) yield { field: 'spec.rules', message: 'at least one rule is required' };
  const seen = new Set<string>();
  for (const [index, { pathPrefix, port }] of rules.entries()) {
    const field = `spec.rules[${index}].path_prefix`;
    const problem = findPathProblem(pathPrefix);
    const path = normalizePathPrefix(pathPrefix);
    if (problem !== undefined) yield { field, message: problem };
    else if (seen.has(path)) yield { field, message: `"${path}" is used twice; join both rules` };
    seen.add(path);
    if (!/^\d+$/.test(port) || (Number(port) >= 1 && Number(port) <= 65_535)) continue;
    const message = `${port} is not a port number from 1 to 65535`;
    yield { field: `spec.rules[${index}].port`, message };
  }
}

/** Explains why no request can match a path prefix; undefined for a prefix that can match. */
function findPathProblem(path: string): string | undefined {
  const text = JSON.stringify(path);
  if (path !== '' && !path.startsWith('/')) return `${text} must begin with "/"`;
  if (/[?#]/.test(path)) return `${text} must not contain "?" or "#": only paths are compared`;
  if (!/^[!-~]*$/.test(path)) return `${text} must be percent-encoded`;
  if (/%(?![0-9A-Fa-f]{2})/.test(path))
    return `${text} contains "%" without two hexadecimal digits`;
  if (path.includes('//')) return `${text} must not contain "//"`;
  if (/\/\.{1,2}(\/|$)/.test(path)) return `${text} must not contain the segments "." and ".."`;
  return undefined;
}

function* validateTls({ tls, redirectToHttps }: RouteSpec): Generator<Violation> {
  if (tls === undefined) {
    if (redirectToHttps)
      yield { field: 'spec.redirect_to_https', message: 'needs spec.tls; set it, or leave it out' };
    return;
  }
  const { certificateFile, keyFile, certificateSecret } = tls;
  const files = [
    ['spec.tls.certificate_file', certificateFile],
    ['spec.tls.key_file', keyFile],
  ] as const;
  const problem = certificateSecret === '' ? undefined : findSecretNameProblem(certificateSecret);
  if (problem !== undefined) yield { field: 'spec.tls.certificate_secret', message: problem };
  for (const [field, path] of files) {
    if (certificateSecret !== '') {
      if (path !== '')
        yield { field, message: 'cannot be combined with certificate_secret; set one of them' };
    } else if (path === '')
      yield { field, message: 'is required with spec.tls, unless certificate_secret is set' };
    else if (!path.startsWith('/') || path.includes('\0')) {
      const message = `${JSON.stringify(path)} is not an absolute path of a file on the nodes`;
      yield { field, message };
    }
  }
}
