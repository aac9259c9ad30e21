import { normalizePathPrefix } from '@cloudless/api';
import type { ConvertedDocument } from './converted-object.js';
import { takeMetadata } from './kubernetes-metadata.js';
import { withoutEmpty } from './source-map.js';
import type { SourceMap } from './source-map.js';

const SPEC_REASONS: Readonly<Record<string, string>> = {
  ingressClassName: 'every node with an ingress listener serves the route; see spec.nodeSelector',
};

const NGINX = 'nginx.ingress.kubernetes.io';
/** Replacement for annotations of controllers, for the note. */
const ANNOTATION_REASONS: Readonly<Record<string, string>> = {
  'cert-manager.io/cluster-issuer': 'renew the certificate with "cloudlessctl secret update"',
  'cert-manager.io/issuer': 'renew the certificate with "cloudlessctl secret update"',
  'kubernetes.io/ingress.class': SPEC_REASONS['ingressClassName'] ?? '',
  [`${NGINX}/force-ssl-redirect`]: 'set spec.redirectToHttps',
  [`${NGINX}/ssl-redirect`]: 'set spec.redirectToHttps',
  [`${NGINX}/proxy-body-size`]: 'set spec.limits.maxBodyBytes',
  [`${NGINX}/proxy-read-timeout`]: 'set spec.rules[].timeout',
  [`${NGINX}/rewrite-target`]: 'services receive the path of the request',
};

/** Most hosts of a route. */
const MAX_HOSTS = 16;

/** A path of a host, and the rule of a route that it becomes. */
interface PathRule {
  readonly isExact: boolean;
  readonly source: SourceMap;
  readonly rule: Readonly<Record<string, unknown>> & { readonly pathPrefix: string };
}

/** A certificate for hosts. */
interface Certificate {
  readonly source: SourceMap;
  /** Empty: all hosts. */
  readonly hosts: readonly string[];
  readonly secret: string | undefined;
}

/** Hosts with the same rules and the same certificate: one route. */
interface HostGroup {
  readonly hosts: readonly string[];
  readonly rules: readonly PathRule['rule'][];
  readonly secret: string | undefined;
}

/** The key of the rules for every host. */
const EVERY_HOST = '';

/**
 * Converts an Ingress to routes. A route has one list of rules and one certificate for all its hosts,
 * so hosts whose rules or certificates differ become routes of their own.
 */
export function convertIngress(object: SourceMap): readonly ConvertedDocument[] {
  const { namespace, name, labels, annotations } = takeMetadata(object, 'ingress');
  annotations.ignore('kubectl.kubernetes.io/last-applied-configuration');
  annotations.finish(ANNOTATION_REASONS);
  const spec = object.takeMap('spec');
  object.finish();
  const certificates = spec.takeMaps('tls').map(takeCertificate);
  const paths = takeRules(spec);
  addDefaultBackend(spec, paths);
  spec.finish(SPEC_REASONS);
  const groups = groupHosts(paths, certificates);
  const routes = groups.map((group, index) => ({
    ...group,
    name: index === 0 ? name : `${name.slice(0, 59)}-${index + 1}`,
  }));
  if (routes.length > 1) {
    const texts = routes.map(
      (route) => `${route.name} (${route.hosts.join(', ') || 'every host'})`,
    );
    object.note(
      'spec',
      `became the routes ${texts.join(' and ')}: a route has the same rules and certificate for all its hosts`,
    );
  }
  for (const certificate of certificates)
    reportCertificate(
      certificate,
      [...paths.keys()],
      routes
        .filter(({ secret }) => secret === certificate.secret)
        .map((route) => `${namespace ?? 'default'}.${route.name}`),
    );
  return routes.map((route) => ({
    ...({ kind: 'Route', namespace, name: route.name } as const),
    body: withoutEmpty({
      labels,
      spec: withoutEmpty({
        hosts: route.hosts,
        rules: route.rules,
        tls: route.secret === undefined ? undefined : { certificateSecret: route.secret },
      }),
    }),
  }));
}

function takeCertificate(source: SourceMap): Certificate {
  const certificate = {
    source,
    hosts: source.takeTexts('hosts'),
    secret: source.takeText('secretName'),
  };
  source.finish();
  return certificate;
}

/** Says what the secret needs, and which hosts of the certificate no route has. */
function reportCertificate(
  { source, hosts, secret }: Certificate,
  ruleHosts: readonly string[],
  routes: readonly string[],
): void {
  const unused = hosts.filter((host) => !ruleHosts.some((ruleHost) => covers(host, ruleHost)));
  if (unused.length > 0)
    source.note('hosts', `${unused.join(', ')} was left out: no rule has this host`);
  if (secret === undefined)
    source.note('secretName', 'is missing: set spec.tls.certificateSecret of the route');
  else if (routes.length > 0)
    source.note(
      'secretName',
      `the secret must permit the route: cloudlessctl secret create ${secret}${routes.map((route) => ` --audience route/${route}`).join('')} --from-file tls.crt=PATH --from-file tls.key=PATH`,
    );
}

/** Returns the paths by host. */
function takeRules(spec: SourceMap): Map<string, PathRule[]> {
  const paths = new Map<string, PathRule[]>();
  for (const rule of spec.takeMaps('rules')) {
    const host = rule.takeText('host') ?? EVERY_HOST;
    const http = rule.takeMap('http');
    const taken = http.takeMaps('paths').flatMap(takePath);
    http.finish();
    rule.finish();
    if (taken.length > 0) paths.set(host, [...(paths.get(host) ?? []), ...taken]);
    else rule.report(rule.path, 'left out: has no path that leads to a service');
  }
  return paths;
}

function takePath(source: SourceMap): readonly PathRule[] {
  const pathPrefix = normalizePathPrefix(source.takeText('path') ?? '');
  const type = source.takeText('pathType') ?? 'ImplementationSpecific';
  const backend = source.takeMap('backend');
  const target = takeBackend(backend);
  source.finish();
  if (target === undefined) return [];
  if (type === 'Exact')
    source.note(
      'pathType',
      `Exact became a prefix: the route covers the paths below ${pathPrefix} too`,
    );
  else if (type !== 'Prefix' && pathPrefix !== '/')
    source.note('pathType', `${type} became a prefix, which is compared by whole segments`);
  return [{ isExact: type === 'Exact', source, rule: { pathPrefix, ...target } }];
}

/** Returns the service and the port of a backend; undefined, with a note, when there is none. */
function takeBackend(
  backend: SourceMap,
): { readonly service: string; readonly port: string } | undefined {
  const source = backend.takeMap('service');
  const service = source.takeText('name');
  const portSource = source.takeMap('port');
  const port = portSource.takeText('name') ?? portSource.takeText('number');
  for (const map of [portSource, source, backend]) map.finish();
  if (service !== undefined && port !== undefined) return { service, port };
  backend.report(backend.path, 'left out: a rule needs the name and the port of a service');
  return undefined;
}

/** Adds the backend of requests that no rule covers as a rule for every host. */
function addDefaultBackend(spec: SourceMap, paths: Map<string, PathRule[]>): void {
  if (!spec.keys.includes('defaultBackend')) return;
  const source = spec.takeMap('defaultBackend');
  const target = takeBackend(source);
  if (target === undefined) return;
  const rules = paths.get(EVERY_HOST) ?? [];
  if (rules.some(({ rule }) => rule.pathPrefix === '/')) {
    spec.note('defaultBackend', 'left out: a rule for every host covers all paths');
    return;
  }
  spec.note(
    'defaultBackend',
    'became the path prefix / for every host that no other route of the cluster names',
  );
  const rule = { pathPrefix: '/', ...target };
  paths.set(EVERY_HOST, [...rules, { isExact: false, source, rule }]);
}

/** Groups hosts with the same rules and certificate, at most {@link MAX_HOSTS} each. */
function groupHosts(
  paths: ReadonlyMap<string, readonly PathRule[]>,
  certificates: readonly Certificate[],
): readonly HostGroup[] {
  const groups = new Map<string, HostGroup[]>();
  for (const [host, hostPaths] of paths) {
    const rules = toRules(hostPaths);
    const secret = findSecret(host, certificates);
    // A route without hosts is for every host: it cannot have one in addition.
    const key = JSON.stringify([host === EVERY_HOST, secret, rules]);
    const found = groups.get(key) ?? [];
    const last = found.at(-1);
    if (last === undefined || last.hosts.length === MAX_HOSTS)
      groups.set(key, [...found, { hosts: host === EVERY_HOST ? [] : [host], rules, secret }]);
    else groups.set(key, [...found.slice(0, -1), { ...last, hosts: [...last.hosts, host] }]);
  }
  return [...groups.values()].flat();
}

/** Returns one rule for each path prefix; one that was exact gives way. */
function toRules(paths: readonly PathRule[]): readonly PathRule['rule'][] {
  const rules = new Map<string, PathRule['rule']>();
  for (const isExact of [false, true]) {
    for (const path of paths.filter((each) => each.isExact === isExact)) {
      const { pathPrefix } = path.rule;
      if (rules.has(pathPrefix))
        path.source.note('path', `left out: another rule has the path prefix ${pathPrefix}`);
      else rules.set(pathPrefix, path.rule);
    }
  }
  return [...rules.values()];
}

/** Returns the secret with the certificate for a host: one with the exact name comes first. */
function findSecret(host: string, certificates: readonly Certificate[]): string | undefined {
  const found =
    certificates.find(({ hosts }) => hosts.includes(host)) ??
    certificates.find(({ hosts }) => hosts.some((pattern) => covers(pattern, host))) ??
    certificates.find(({ hosts }) => hosts.length === 0);
  return found?.secret;
}

/** Returns true when a host name, or a name with a wildcard for one label, stands for a host. */
function covers(pattern: string, host: string): boolean {
  if (pattern === host) return true;
  return pattern.startsWith('*.') && pattern.slice(1) === host.replace(/^[^.]+/, '');
}
