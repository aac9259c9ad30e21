import fc from 'fast-check';
import { parseAllDocuments } from 'yaml';
import { convertManifests } from './convert.js';

/** Converts the texts of files, and returns the objects and the notes as lines. */
function convert(...texts: readonly string[]): {
  readonly objects: readonly Readonly<Record<string, unknown>>[];
  readonly notes: readonly string[];
} {
  const sources = texts.map((text, index) => ({
    file: `${index}.yaml`,
    bytes: new TextEncoder().encode(text),
  }));
  const conversion = convertManifests(sources, {});
  if ('problem' in conversion) throw new Error(conversion.problem);
  const documents = parseAllDocuments(conversion.manifest);
  return {
    objects: 'empty' in documents ? [] : documents.map((document) => document.toJS() as never),
    notes: conversion.notes.map(({ path, message }) => `${path}: ${message}`),
  };
}

/** A Deployment with the pod labels `app: <name>` and other labels of its own. */
const aDeployment = (name: string, ports = '[{containerPort: 8080}]', app = name): string =>
  `{apiVersion: apps/v1, kind: Deployment, metadata: {name: ${name}, labels: {team: a}}, spec: {template: {metadata: {labels: {app: ${app}, tier: front}}, spec: {containers: [{image: nginx, ports: ${ports}}]}}}}`;
const aService = (spec: string, metadata = 'name: web'): string =>
  `{apiVersion: v1, kind: Service, metadata: {${metadata}}, spec: {${spec}}}`;
const anIngress = (spec: string, metadata = 'name: shop'): string =>
  `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {${metadata}}, spec: {${spec}}}`;
const path = (text: string, type = 'Prefix', service = 'web', port = '{number: 80}'): string =>
  `{path: ${text}, pathType: ${type}, backend: {service: {name: ${service}, port: ${port}}}}`;

describe('convertManifests of a Kubernetes Service', () => {
  it.each<[string, string, Record<string, unknown>]>([
    [
      'a port',
      'selector: {app: web}, ports: [{port: 80, targetPort: 8080}]',
      { workload: 'web', ports: [{ port: 80, targetPort: '8080' }] },
    ],
    [
      'the default of the target port',
      'selector: {app: web}, ports: [{name: http, port: 8080, protocol: TCP, appProtocol: http}]',
      { workload: 'web', ports: [{ name: 'http', port: 8080, targetPort: '8080' }] },
    ],
    [
      'a node port and UDP',
      'type: NodePort, selector: {app: web}, ports: [{name: dns, port: 53, targetPort: 8080, nodePort: 30053, protocol: UDP}]',
      {
        ...{ type: 'NODE_PORT', workload: 'web' },
        ports: [{ name: 'dns', port: 53, targetPort: '8080', nodePort: 30_053, protocol: 'UDP' }],
      },
    ],
    [
      'a headless service without ports',
      'clusterIP: None, selector: {app: web}',
      { workload: 'web', headless: true, ports: [{ port: 8080 }] },
    ],
    [
      'session affinity',
      'selector: {app: web}, ports: [{port: 8080}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}',
      {
        ...{ workload: 'web', sessionAffinity: 'CLIENT_IP', sessionAffinityTimeout: '60s' },
        ports: [{ port: 8080, targetPort: '8080' }],
      },
    ],
    [
      'an external name',
      'type: ExternalName, externalName: db.example.com',
      { externalName: 'db.example.com' },
    ],
  ])('converts %s without a note', (_title, spec, expected) => {
    const { objects, notes } = convert(`${aDeployment('web')}\n---\n${aService(spec)}`);
    expect(notes).toEqual([]);
    expect(objects[1]).toEqual({ kind: 'Service', name: 'web', spec: expected });
  });

  it.each([
    ['type: LoadBalancer, ports: [{port: 80}]', 'spec.type: no load balancer is created'],
    ['externalIPs: [192.0.2.1], ports: [{port: 80}]', 'type ClusterIP became LOAD_BALANCER'],
    ['clusterIP: 10.0.0.1, ports: [{port: 80}]', 'spec.clusterIP: 10.0.0.1 was left out'],
    [
      'externalTrafficPolicy: Local, ports: [{port: 80}]',
      'externalTrafficPolicy: has no equivalent',
    ],
    ['publishNotReadyAddresses: true, ports: [{port: 80}]', 'only ready replicas are endpoints'],
    ['loadBalancerIP: 192.0.2.1, ports: [{port: 80}]', 'loadBalancerIP: has no equivalent: set'],
    ['nonsense: 1, ports: [{port: 80}]', 'spec.nonsense: has no equivalent'],
    ['ports: [{port: 80, protocol: SCTP}, {port: 81}]', 'ports[0].protocol: the port was left out'],
    ['ports: [{port: 80, targetPort: web}]', 'the workload web has no port with the name web'],
    [
      'clusterIP: None, sessionAffinity: ClientIP, ports: [{port: 80}]',
      'spec.sessionAffinity: left',
    ],
    ['type: ExternalName, externalName: a.b, ports: [{port: 80}]', 'spec.ports: has no equivalent'],
    ['type: Other, ports: [{port: 80}]', 'spec.type: Other has no equivalent'],
  ])('names what is left out of %s', (spec, note) => {
    const selector = spec.includes('ExternalName') ? '' : 'selector: {app: web}, ';
    const { notes } = convert(`${aDeployment('web')}\n---\n${aService(selector + spec)}`);
    expect(notes.join('\n')).toContain(note);
  });

  it('finds workloads in other files, and declares the ports that the service leads to', () => {
    const { objects, notes } = convert(
      aService('selector: {app: web, tier: front}, ports: [{port: 80, targetPort: 9090}]'),
      aDeployment('web'),
    );
    expect(notes).toEqual([
      'spec.ports[0].targetPort: the workload web declares the port 9090 now, and a replica is ready only when the port accepts connections; a readinessProbe decides otherwise',
    ]);
    expect(objects).toMatchObject([
      { kind: 'Service', spec: { workload: 'web' } },
      { kind: 'Workload', spec: { ports: [{ containerPort: 8080 }, { containerPort: 9090 }] } },
    ]);
  });

  it('reports no declared port of a workload whose readiness a probe decides', () => {
    const probe = 'readinessProbe: {tcpSocket: {port: 8080}}, image';
    const { notes } = convert(
      aDeployment('web').replace('image', probe),
      aService('selector: {app: web}, ports: [{port: 9090}]'),
    );
    expect(notes).toEqual([]);
  });

  it('gives a declared port another name than one of the same number', () => {
    const { objects } = convert(
      `${aDeployment('web', '[{containerPort: 53}]')}\n---\n${aService('selector: {app: web}, ports: [{name: dns, port: 53, protocol: UDP}]')}`,
    );
    expect(objects).toMatchObject([
      {
        spec: {
          ports: [{ containerPort: 53 }, { name: 'port-53-udp', containerPort: 53 }],
        },
      },
      { spec: { ports: [{ name: 'dns', port: 53, targetPort: '53', protocol: 'UDP' }] } },
    ]);
  });

  it('keeps a selector that matches several workloads, which receive its labels', () => {
    const { objects, notes } = convert(
      [
        aDeployment('web'),
        aDeployment('canary', '[]', 'web'),
        aDeployment('other'),
        aService('selector: {app: web}, ports: [{port: 8080}]'),
      ].join('\n---\n'),
    );
    expect(objects).toMatchObject([
      { name: 'web', spec: { labels: { app: 'web', team: 'a' } } },
      { name: 'canary', spec: { labels: { app: 'web' }, ports: [{ containerPort: 8080 }] } },
      { name: 'other', spec: { labels: { team: 'a' } } },
      { kind: 'Service', spec: { selector: { app: 'web' } } },
    ]);
    expect(notes).toEqual([
      'spec.selector: matches the workloads web, canary, which have the labels of the selector now',
      expect.stringContaining(
        'spec.ports[0].targetPort: the workload canary declares the port 8080',
      ),
    ]);
  });

  it.each([
    [
      'no workload',
      'selector: {app: db}, ports: [{port: 80}]',
      { selector: { app: 'db' } },
      'spec.selector: matches no workload of this input: give these labels to the workload, or name the workload in spec.workload',
    ],
    [
      'a workload of another namespace',
      'selector: {app: web}, ports: [{port: 80}]',
      { selector: { app: 'web' } },
      'spec.selector: matches no workload of this input: give these labels to the workload, or name the workload in spec.workload',
    ],
    [
      'nothing, without a selector',
      'ports: [{port: 80}]',
      {},
      'spec.selector: is missing: the service leads to the addresses that the call RegisterEndpoint adds',
    ],
  ])('reports a selector of %s', (title, spec, expected, note) => {
    const metadata = title.includes('namespace') ? 'name: web, namespace: prod' : 'name: web';
    const { objects, notes } = convert(`${aDeployment('web')}\n---\n${aService(spec, metadata)}`);
    expect(objects[1]).toMatchObject({ kind: 'Service', spec: expected });
    expect(notes).toEqual([note]);
  });

  it('keeps labels and the namespace, and reports annotations', () => {
    const metadata = 'name: web, namespace: prod, labels: {a: b}, annotations: {c: d}';
    const { objects, notes } = convert(aService('type: ExternalName, externalName: a.b', metadata));
    expect(objects).toEqual([
      {
        ...{ kind: 'Service', namespace: 'prod', name: 'web', labels: { a: 'b' } },
        spec: { externalName: 'a.b' },
      },
    ]);
    expect(notes).toEqual(['metadata.annotations.c: has no equivalent']);
  });
});

describe('convertManifests of a Kubernetes Ingress', () => {
  it('converts hosts, path prefixes and ports by name and number without a note', () => {
    const { objects, notes } = convert(
      anIngress(
        `rules: [{host: shop.example.com, http: {paths: [${path('/')}, ${path('/api/', 'Prefix', 'api', '{name: http}')}]}}]`,
        'name: shop, namespace: prod, labels: {a: b}',
      ),
    );
    expect(notes).toEqual([]);
    expect(objects).toEqual([
      {
        ...{ kind: 'Route', namespace: 'prod', name: 'shop', labels: { a: 'b' } },
        spec: {
          hosts: ['shop.example.com'],
          rules: [
            { pathPrefix: '/', service: 'web', port: '80' },
            { pathPrefix: '/api', service: 'api', port: 'http' },
          ],
        },
      },
    ]);
  });

  it('joins hosts with the same rules, and says what the secret needs', () => {
    const rules = ['a.example.com', 'b.example.com'].map(
      (host) => `{host: ${host}, http: {paths: [${path('/')}]}}`,
    );
    const { objects, notes } = convert(
      anIngress(`rules: [${rules.join()}], tls: [{hosts: ["*.example.com"], secretName: tls}]`),
    );
    expect(objects).toEqual([
      {
        ...{ kind: 'Route', name: 'shop' },
        spec: {
          hosts: ['a.example.com', 'b.example.com'],
          rules: [{ pathPrefix: '/', service: 'web', port: '80' }],
          tls: { certificateSecret: 'tls' },
        },
      },
    ]);
    expect(notes).toEqual([
      'spec.tls[0].secretName: the secret must permit the route: cloudlessctl secret create tls --audience route/default.shop --from-file tls.crt=PATH --from-file tls.key=PATH',
    ]);
  });

  it('makes several routes of hosts with different certificates or rules', () => {
    const { objects, notes } = convert(
      anIngress(
        `rules: [{host: a.b, http: {paths: [${path('/')}]}}, {host: c.d, http: {paths: [${path('/')}]}}, {http: {paths: [${path('/')}]}}], tls: [{hosts: [a.b], secretName: one}, {hosts: [c.d, e.f], secretName: two}]`,
      ),
    );
    expect(objects).toMatchObject([
      { name: 'shop', spec: { hosts: ['a.b'], tls: { certificateSecret: 'one' } } },
      { name: 'shop-2', spec: { hosts: ['c.d'], tls: { certificateSecret: 'two' } } },
      { name: 'shop-3', spec: { rules: [{ service: 'web' }] } },
    ]);
    expect(objects[2]?.['spec']).not.toHaveProperty('tls');
    expect(objects[2]?.['spec']).not.toHaveProperty('hosts');
    expect(notes.map((note) => note.replace(/ --audience.*/, ''))).toEqual([
      'spec: became the routes shop (a.b) and shop-2 (c.d) and shop-3 (every host): a route has the same rules and certificate for all its hosts',
      'spec.tls[0].secretName: the secret must permit the route: cloudlessctl secret create one',
      'spec.tls[1].hosts: e.f was left out: no rule has this host',
      'spec.tls[1].secretName: the secret must permit the route: cloudlessctl secret create two',
    ]);
  });

  it('takes a certificate for the exact host before one with a wildcard', () => {
    const { objects } = convert(
      anIngress(
        `rules: [{host: a.b.c, http: {paths: [${path('/')}]}}], tls: [{secretName: all}, {hosts: ["*.b.c"], secretName: wild}, {hosts: [a.b.c], secretName: exact}]`,
      ),
    );
    expect(objects).toMatchObject([{ spec: { tls: { certificateSecret: 'exact' } } }]);
  });

  it('gives a route at most 16 hosts', () => {
    const hosts = Array.from({ length: 17 }, (_, index) => `h${index}.example.com`);
    const rules = hosts.map((host) => `{host: ${host}, http: {paths: [${path('/')}]}}`);
    const { objects } = convert(anIngress(`rules: [${rules.join()}]`));
    expect(objects).toMatchObject([
      { name: 'shop', spec: { hosts: hosts.slice(0, 16) } },
      { name: 'shop-2', spec: { hosts: hosts.slice(16) } },
    ]);
  });

  it('lets an exact path give way to the prefix of the same name', () => {
    const { objects, notes } = convert(
      anIngress(
        `rules: [{http: {paths: [${path('/a', 'Exact', 'x')}, ${path('/a', 'Prefix', 'y')}]}}]`,
      ),
    );
    expect(objects).toMatchObject([{ spec: { rules: [{ pathPrefix: '/a', service: 'y' }] } }]);
    expect(notes).toContain(
      'spec.rules[0].http.paths[0].path: left out: another rule has the path prefix /a',
    );
  });

  it('makes the default backend the rule of every host', () => {
    const { objects, notes } = convert(
      anIngress(
        `defaultBackend: {service: {name: front, port: {number: 80}}}, rules: [{http: {paths: [${path('/a')}]}}]`,
      ),
    );
    expect(objects).toMatchObject([
      {
        spec: { rules: [{ pathPrefix: '/a' }, { pathPrefix: '/', service: 'front', port: '80' }] },
      },
    ]);
    expect(notes).toEqual([
      'spec.defaultBackend: became the path prefix / for every host that no other route of the cluster names',
    ]);
  });

  const RULES = `rules: [{host: a.b, http: {paths: [${path('/')}]}}]`;
  it.each([
    [`rules: [{http: {paths: [${path('/a', 'Exact')}]}}]`, 'pathType: Exact became a prefix: the'],
    [
      `rules: [{http: {paths: [${path('/a', 'ImplementationSpecific')}]}}]`,
      'ImplementationSpecific became a prefix, which is compared by whole segments',
    ],
    [`rules: [{host: a.b}]`, 'spec.rules[0]: left out: has no path that leads to a service'],
    [
      'rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {resource: {kind: B}}}]}}]',
      'backend: left out: a rule needs the name and the port of a service',
    ],
    [`${RULES}, tls: [{hosts: [a.b]}]`, 'spec.tls[0].secretName: is missing'],
    [`${RULES}, ingressClassName: nginx`, 'spec.ingressClassName: has no equivalent: every node'],
    [`${RULES}, nonsense: 1`, 'spec.nonsense: has no equivalent'],
    [
      `defaultBackend: {service: {name: a, port: {number: 1}}}, rules: [{http: {paths: [${path('/')}]}}]`,
      'defaultBackend: left out: a rule for every host covers all paths',
    ],
    [
      'rules: [{host: A.b, http: {paths: [{backend: {service: {name: a, port: {number: 1}}}}]}}]',
      'spec.hosts[0]: "A.b" is not a host name',
    ],
  ])('names what is left out of %s', (spec, note) => {
    expect(convert(anIngress(spec)).notes.join('\n')).toContain(note);
  });

  it('reports annotations with the field that has their meaning', () => {
    const annotations =
      'annotations: {"nginx.ingress.kubernetes.io/ssl-redirect": "true", other: x}';
    expect(convert(anIngress(RULES, `name: shop, ${annotations}`)).notes).toEqual([
      'metadata.annotations.nginx.ingress.kubernetes.io/ssl-redirect: has no equivalent: set spec.redirectToHttps',
      'metadata.annotations.other: has no equivalent',
    ]);
  });

  it('names the command for a TLS secret with the audience of routes, and no value', () => {
    const { notes } = convert(
      '{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {name: tls, namespace: prod}, data: {tls.crt: Q0VSVA==, tls.key: S0VZ}}',
    );
    expect(notes.join()).toContain(
      "cloudlessctl secret create tls --audience 'route/prod.*' --from-file tls.crt=PATH --from-file tls.key=PATH",
    );
    expect(notes.join()).not.toMatch(/Q0VSVA|S0VZ/);
  });

  it('converts or names every key of an Ingress and of a Service', () => {
    const words = fc.uniqueArray(fc.stringMatching(/^[a-w][a-z]{0,12}$/), { maxLength: 4 });
    fc.assert(
      fc.property(words, (keys) => {
        const fields = keys.map((key) => `zz${key}: 1`).join(', ');
        const expected = keys.map((key) => `spec.zz${key}: has no equivalent`);
        expect(convert(anIngress(`${RULES}, ${fields}`)).notes).toEqual(expected);
        const service = aService(`type: ExternalName, externalName: a.b, ${fields}`);
        expect(convert(service).notes).toEqual(expected);
      }),
      { numRuns: 20 },
    );
  });
});

describe('convertManifests of the ports of a Compose file', () => {
  it('creates a service of the same name for ports and expose', () => {
    const { objects, notes } = convert(
      'services: {web: {image: nginx, ports: ["8080:80", "80"]}, db: {image: pg, expose: [5432]}, job: {image: j}}',
    );
    expect(notes).toEqual([]);
    expect(objects).toEqual([
      {
        ...{ kind: 'Workload', name: 'web' },
        spec: {
          image: 'nginx',
          ports: [{ containerPort: 80, hostPort: 8080 }],
        },
      },
      { kind: 'Service', name: 'web', spec: { ports: [{ port: 80 }], workload: 'web' } },
      {
        ...{ kind: 'Workload', name: 'db' },
        spec: { image: 'pg', ports: [{ containerPort: 5432 }] },
      },
      { kind: 'Service', name: 'db', spec: { ports: [{ port: 5432 }], workload: 'db' } },
      { kind: 'Workload', name: 'job', spec: { image: 'j' } },
    ]);
  });

  it('gives ports of the same number names that differ, which the API demands', () => {
    const { objects, notes } = convert(
      'services: {dns: {image: d, ports: ["53:53/tcp", "53:53/udp", "54:53"], expose: ["54/udp", "53"]}}',
    );
    expect(notes).toEqual([]);
    expect(objects).toMatchObject([
      {
        spec: {
          ports: [
            { containerPort: 53, hostPort: 53 },
            { name: 'port-53-udp', containerPort: 53, hostPort: 53, protocol: 'UDP' },
            { name: 'port-53-2', containerPort: 53, hostPort: 54 },
            { containerPort: 54, protocol: 'UDP' },
          ],
        },
      },
      {
        spec: {
          ports: [
            { port: 53 },
            { name: 'port-53-udp', port: 53, protocol: 'UDP' },
            { port: 54, protocol: 'UDP' },
          ],
        },
      },
    ]);
  });

  it.each([
    ['depends_on: [db]', 'services.db: has no ports, so its name leads nowhere'],
    ['depends_on: {db: {condition: service_healthy}}', 'services.db: has no ports'],
    ['links: ["db:database"]', 'services.db: has no ports'],
    ['expose: ["80-90"]', 'services.web.expose[0]: left out: 80-90 is no single port'],
  ])('reports a service that others cannot reach: %s', (fields, note) => {
    const { notes } = convert(`services: {web: {image: a, ${fields}}, db: {image: b}}`);
    expect(notes.join('\n')).toContain(note);
  });

  it('does not report a service with ports on which another depends', () => {
    const { notes } = convert(
      'services: {web: {image: a, depends_on: [db]}, db: {image: b, expose: ["1"]}}',
    );
    expect(notes.map((note) => note.split(':')[0])).toEqual(['services.web.depends_on']);
  });
});
