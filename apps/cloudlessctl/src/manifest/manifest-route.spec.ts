import { create } from '@bufbuild/protobuf';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import fc from 'fast-check';
import { RouteSpecSchema, withRouteDefaults } from '@cloudless/api';
import { parseManifest } from './parse-manifest.js';
import { printRouteManifests } from './print-manifest.js';
import { printYaml } from './print-yaml.js';
import { formatProblem } from './yaml-reader.js';

const parse = (text: string): ReturnType<typeof parseManifest> =>
  parseManifest('shop.yaml', new TextEncoder().encode(text), 'default');
const problems = (text: string): readonly string[] => parse(text).problems.map(formatProblem);
const aRoute = (spec: string, others = ''): string =>
  `kind: Route\nname: shop\n${others}spec: ${spec}\n`;

describe('manifest of a route', () => {
  it('reads hosts, rules, TLS, limits, nodes and labels', () => {
    const {
      routes,
      services,
      workloads,
      problems: found,
    } = parse(`kind: Route
namespace: shop
name: shop
labels: { app: shop }
spec:
  hosts: [shop.example.com]
  rules: [{ service: web, port: http }, { pathPrefix: /api, service: api, port: "80", timeout: 90s, retries: 0 }]
  tls: { certificateSecret: shop-tls }
  redirectToHttps: true
  limits: { maxHeaderBytes: 32Ki, maxBodyBytes: 10Mi }
  nodeSelector: { ingress: "true" }
`);
    expect({ found, services, workloads }).toEqual({ found: [], services: [], workloads: [] });
    expect(routes).toMatchObject([
      {
        ...{ namespace: 'shop', name: 'shop', labels: { app: 'shop' } },
        spec: {
          hosts: ['shop.example.com'],
          rules: [
            { pathPrefix: '', service: 'web', port: 'http' },
            {
              pathPrefix: '/api',
              service: 'api',
              port: '80',
              timeout: { seconds: 90n },
              retries: 0,
            },
          ],
          ...{ tls: { certificateSecret: 'shop-tls' }, redirectToHttps: true },
          limits: { maxHeaderBytes: 32_768, maxBodyBytes: 10_485_760n },
          nodeSelector: { ingress: 'true' },
        },
      },
    ]);
  });

  it('reads a route, a service and a workload of the same name', () => {
    const {
      workloads,
      services,
      routes,
      problems: found,
    } = parse(
      `name: shop\nspec: {image: a}\n---\nkind: Service\nname: shop\nspec: {ports: [{port: 80}]}\n---\n${aRoute('{rules: [{service: shop, port: "80"}]}')}`,
    );
    expect([found, workloads.length, services.length, routes.length]).toEqual([[], 1, 1, 1]);
  });

  it('ignores what the cluster has set in the output of get, of one and of several routes', () => {
    const json = {
      ...{ kind: 'Route', namespace: 'default', name: 'shop', uid: 'a', generation: '2' },
      createdAt: '2026-01-01T00:00:00Z',
      spec: {
        rules: [{ pathPrefix: '/', service: 'web', port: '80', timeout: '60s', retries: 1 }],
        limits: { maxHeaderBytes: 16384, maxBodyBytes: '0' },
      },
      status: { conditions: [{ type: 'SERVICES_EXIST', holds: true }] },
    };
    for (const value of [json, { routes: [json] }, { routes: [{ ...json, kind: undefined }] }]) {
      for (const text of [JSON.stringify(value), printYaml(JSON.parse(JSON.stringify(value)))]) {
        const { routes, problems: found } = parse(text);
        expect(found).toEqual([]);
        expect(routes).toMatchObject([{ name: 'shop', spec: { rules: [{ service: 'web' }] } }]);
      }
    }
  });

  it('reads back what is printed with -o manifest', () => {
    const anyTls = fc.constantFrom(
      undefined,
      { certificateSecret: 'shop-tls' },
      { certificateFile: '/a.pem', keyFile: '/a.key' },
    );
    const anyRoute = fc.record({
      tls: anyTls,
      host: fc.constantFrom('shop.example.com', '*.example.com'),
      path: fc.constantFrom('', '/', '/a', '/a/b%20c'),
      port: fc.constantFrom('80', 'http'),
      timeoutMs: fc.integer({ min: 1_000, max: 3_600_000 }),
      retries: fc.integer({ min: 0, max: 3 }),
      maxBodyBytes: fc.bigInt({ min: 0n, max: 1n << 40n }),
      label: fc.constantFrom('a', '1', 'true', ''),
    });
    fc.assert(
      fc.property(
        anyRoute,
        ({ tls, host, path, port, timeoutMs, retries, maxBodyBytes, label }) => {
          const spec = withRouteDefaults(
            create(RouteSpecSchema, {
              hosts: [host],
              rules: [
                {
                  ...{ pathPrefix: path, service: 'web', port, retries },
                  timeout: durationFromMs(timeoutMs),
                },
              ],
              ...(tls === undefined ? {} : { tls, redirectToHttps: true }),
              ...{ limits: { maxBodyBytes }, nodeSelector: { zone: label } },
            }),
          );
          const route = { namespace: 'default', name: 'shop', labels: { app: label }, spec };
          const { routes, problems: found } = parse(printRouteManifests([route]));
          expect(found).toEqual([]);
          expect(routes).toEqual([route]);
        },
      ),
      { numRuns: 30 },
    );
  });

  const RULES = 'rules: [{service: web, port: http}]';
  it.each([
    ['{}', 'shop.yaml:3:7: spec.rules: at least one rule is required'],
    [
      `{hosts: [Shop.example.com], ${RULES}}`,
      'shop.yaml:3:16: spec.hosts[0]: "Shop.example.com" is not a host name; write one in lower case without a port, such as shop.example.com, or *.example.com for all names one label below',
    ],
    [
      '{rules: [{pathPrefix: a, service: web, port: http}]}',
      'shop.yaml:3:29: spec.rules[0].pathPrefix: "a" must begin with "/"',
    ],
    [
      '{rules: [{service: web, port: 80}]}',
      'shop.yaml:3:37: spec.rules[0].port: expected a string, got the number 80; write "80"',
    ],
    ['{rules: [{port: http}]}', 'shop.yaml:3:16: spec.rules[0].service: is required'],
    ['{rules: [{service: web}]}', 'shop.yaml:3:16: spec.rules[0].port: is required'],
    [
      `{${RULES}, redirect_to_https: true}`,
      'shop.yaml:3:64: spec.redirect_to_https: needs spec.tls; set it, or leave it out',
    ],
    [
      `{${RULES}, tls: {certificateSecret: a, keyFile: /b}}`,
      'shop.yaml:3:82: spec.tls.keyFile: cannot be combined with certificate_secret; set one of them',
    ],
    [`{${RULES}, host: [a.b]}`, 'shop.yaml:3:45: spec.host: unknown key; did you mean hosts?'],
  ])('refuses the spec %s', (spec, problem) => {
    expect(problems(aRoute(spec))).toEqual([problem]);
  });

  it.each([
    ['kind: Route\nname: a\n', 'shop.yaml:1:1: spec: is missing'],
    [
      aRoute(`{${RULES}}`, 'loadBalancer: {}\n'),
      'shop.yaml:3:1: loadBalancer: unknown key; known: kind, namespace, name, spec, labels',
    ],
    [
      `${aRoute(`{${RULES}}`)}---\n${aRoute(`{${RULES}}`)}`,
      'shop.yaml:5:1: the route default/shop is declared twice',
    ],
    [
      aRoute(`{${RULES}}`, 'labels: {app: 1}\n'),
      'shop.yaml:3:15: labels["app"]: expected a string, got the number 1; write "1"',
    ],
  ])('refuses the document %j', (text, problem) => {
    expect(problems(text)).toEqual([problem]);
  });
});
