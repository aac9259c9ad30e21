import { create, toJson } from '@bufbuild/protobuf';
import fc from 'fast-check';
import {
  LoadBalancerConfig_Algorithm as Algorithm,
  Port_Protocol as Protocol,
  ServiceSpecSchema,
  ServiceSpec_SessionAffinity as Affinity,
  ServiceSpec_Type as Type,
  withBalancingDefaults,
  withServiceDefaults,
} from '@cloudless/api';
import { parseManifest } from './parse-manifest.js';
import { printServiceManifests } from './print-manifest.js';
import { printYaml } from './print-yaml.js';
import { formatProblem } from './yaml-reader.js';

const parse = (text: string): ReturnType<typeof parseManifest> =>
  parseManifest('web.yaml', new TextEncoder().encode(text), 'default');
const problems = (text: string): readonly string[] => parse(text).problems.map(formatProblem);
const aService = (spec: string, others = ''): string =>
  `kind: Service\nname: web\n${others}spec: ${spec}\n`;

describe('manifest of a service', () => {
  it('reads names, labels, ports and balancing, with enums in the words of flags', () => {
    const {
      services,
      workloads,
      problems: found,
    } = parse(`kind: Service
namespace: shop
name: web
labels: { app: shop }
spec:
  type: NodePort
  workload: web
  ports: [{ name: http, port: 80, targetPort: "8080", nodePort: 30080 }, { port: 53, protocol: udp }]
  sessionAffinity: client-ip
  sessionAffinityTimeout: 1h
loadBalancer: { algorithm: source-hash, localityAware: false }
`);
    expect({ found, workloads }).toEqual({ found: [], workloads: [] });
    expect(services).toMatchObject([
      {
        ...{ namespace: 'shop', name: 'web', labels: { app: 'shop' } },
        spec: {
          ...{ type: Type.NODE_PORT, workload: 'web', sessionAffinity: Affinity.CLIENT_IP },
          ports: [
            { name: 'http', port: 80, targetPort: '8080', nodePort: 30_080 },
            { port: 53, protocol: Protocol.UDP },
          ],
          sessionAffinityTimeout: { seconds: 3_600n },
        },
        loadBalancer: { algorithm: Algorithm.SOURCE_HASH, localityAware: false },
      },
    ]);
  });

  it('reads a workload and a service of the same name in either order', () => {
    const workload = 'name: web\nspec: {image: a}\n';
    const service = aService('{ports: [{port: 80}], workload: web}');
    for (const text of [`${workload}---\n${service}`, `${service}---\n${workload}`]) {
      const { workloads, services, problems: found } = parse(text);
      expect([found, workloads.length, services.length]).toEqual([[], 1, 1]);
    }
  });

  it('reads the output of get in JSON and YAML, of one and of several services', () => {
    const json = {
      ...{ kind: 'Service', namespace: 'default', name: 'web', uid: 'a', generation: '2' },
      ...{ createdAt: '2026-01-01T00:00:00Z', ownerWorkload: '' },
      spec: { ports: [{ name: 'http', port: 80 }], workload: 'web' },
      status: { clusterIp: '10.96.0.20' },
      loadBalancer: { localityAware: true, idleTimeout: '0s', connectTimeout: '2s' },
    };
    const withoutKind = { ...json, kind: undefined };
    for (const value of [json, { services: [json] }, { services: [withoutKind] }]) {
      for (const text of [JSON.stringify(value), printYaml(JSON.parse(JSON.stringify(value)))]) {
        const { services, problems: found } = parse(text);
        expect(found).toEqual([]);
        expect(services).toMatchObject([{ name: 'web', spec: { workload: 'web' } }]);
      }
    }
  });

  it('reads back what is printed with -o manifest', () => {
    const anyService = fc.record({
      port: fc.integer({ min: 1, max: 29_999 }),
      type: fc.constantFrom(Type.CLUSTER_IP, Type.NODE_PORT),
      affinity: fc.constantFrom(Affinity.NONE, Affinity.CLIENT_IP),
      algorithm: fc.constantFrom(Algorithm.RANDOM_TWO, Algorithm.SOURCE_HASH),
      maxConnections: fc.integer({ min: 0, max: 1_000_000 }),
      label: fc.constantFrom('a', '1', 'true', ''),
    });
    fc.assert(
      fc.property(anyService, ({ port, type, affinity, algorithm, maxConnections, label }) => {
        const spec = withServiceDefaults(
          create(ServiceSpecSchema, {
            ...{ ports: [{ port }], selector: { app: 'web' }, type, sessionAffinity: affinity },
          }),
        );
        const loadBalancer = withBalancingDefaults({
          ...withBalancingDefaults(undefined),
          ...{ algorithm, maxConnections },
        });
        const service = {
          ...{ namespace: 'default', name: 'web', labels: { app: label } },
          ...{ spec, loadBalancer },
        };
        const { services, problems: found } = parse(printServiceManifests([service]));
        expect(found).toEqual([]);
        expect(services).toEqual([service]);
      }),
      { numRuns: 20 },
    );
  });

  it.each([
    ['{ports: []}', 'web.yaml:3:15: spec.ports: at least one port is required'],
    ['{}', 'web.yaml:3:7: spec.ports: at least one port is required'],
    [
      '{ports: [{port: 80}], workload: a, selector: {b: c}}',
      'web.yaml:3:52: spec.selector: cannot be combined with workload; set one of them',
    ],
    [
      '{ports: [{port: 80, nodePort: 30080}]}',
      'web.yaml:3:37: spec.ports[0].nodePort: only services of type NODE_PORT and LOAD_BALANCER have ports of nodes',
    ],
    [
      '{ports: [{port: 80}], type: nodport}',
      'web.yaml:3:35: spec.type: expected one of CLUSTER_IP, NODE_PORT, LOAD_BALANCER, got the string "nodport"; did you mean NODE_PORT?',
    ],
    ['{port: 80}', 'web.yaml:3:8: spec.port: unknown key; did you mean ports?'],
    [
      '{ports: [{port: 80, targetPort: 8080}]}',
      'web.yaml:3:39: spec.ports[0].targetPort: expected a string, got the number 8080; write "8080"',
    ],
  ])('refuses the spec %s', (spec, problem) => {
    expect(problems(aService(spec))).toEqual([problem]);
  });

  const SPEC = '{ports: [{port: 80}]}';
  it.each([
    [
      aService(SPEC, 'loadBalancer: {idleTimeout: 5s}\n'),
      'web.yaml:3:29: loadBalancer.idleTimeout: must be 0 or at least 1 h',
    ],
    [
      aService(SPEC, 'loadBalancer: {}\nload_balancer: {}\n'),
      'web.yaml:4:1: load_balancer: cannot be given together with loadBalancer',
    ],
    [
      aService(SPEC, 'labels: {app: 1}\n'),
      'web.yaml:3:15: labels["app"]: expected a string, got the number 1; write "1"',
    ],
    [aService(SPEC, 'label: {}\n'), 'web.yaml:3:1: label: unknown key; did you mean labels?'],
    [
      `name: a\nlabels: {}\nspec: {}\n`,
      'web.yaml:2:1: labels: unknown key; known: kind, namespace, name, spec',
    ],
    ['kind: Service\nname: a\n', 'web.yaml:1:1: spec: is missing'],
    [
      `${aService(SPEC)}---\n${aService(SPEC)}`,
      'web.yaml:5:1: the service default/web is declared twice',
    ],
    [
      `[{"kind": "Service", "name": "a", "spec": {"ports": []}}]`,
      'web.yaml:1:53: [0].spec.ports: at least one port is required',
    ],
  ])('refuses the document %j', (text, problem) => {
    expect(problems(text)).toEqual([problem]);
  });

  it('has the form of the request in proto spelling too', () => {
    const spec = { ports: [{ port: 80, target_port: '8080' }], proxy_protocol: true };
    const { services, problems: found } = parse(
      JSON.stringify({ kind: 'Service', name: 'web', spec }),
    );
    expect(found).toEqual([]);
    expect(services.map((service) => toJson(ServiceSpecSchema, service.spec))).toEqual([
      { ports: [{ port: 80, targetPort: '8080' }], proxyProtocol: true },
    ]);
  });
});
