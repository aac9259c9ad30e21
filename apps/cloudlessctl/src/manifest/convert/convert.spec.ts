import fc from 'fast-check';
import { parse, parseAllDocuments } from 'yaml';
import { formatProblem } from '../yaml-reader.js';
import { convertManifests } from './convert.js';
import type { Conversion } from './convert.js';

const aFile = (text: string, file = 'in.yaml') => ({
  file,
  bytes: new TextEncoder().encode(text),
});

/** Converts the text of a file that can be read. */
function convert(text: string, env: Readonly<Record<string, string>> = {}): Conversion {
  const conversion = convertManifests([aFile(text)], env);
  if ('problem' in conversion) throw new Error(conversion.problem);
  return conversion;
}

/** Returns the objects of a manifest. */
function objectsOf({ manifest }: Conversion): readonly unknown[] {
  const documents = parseAllDocuments(manifest);
  return 'empty' in documents ? [] : documents.map((document) => document.toJS() as unknown);
}

/** Returns the notes as lines. */
const linesOf = ({ notes }: Conversion): readonly string[] =>
  notes.map(({ path, message }) => `${path}: ${message}`);

/** Converts a Compose file with one service and returns the spec and the notes as lines. */
function service(
  fields: string,
  env: Readonly<Record<string, string>> = {},
): { readonly spec: unknown; readonly notes: readonly string[] } {
  const conversion = convert(`services: {web: {image: nginx, ${fields}}}`, env);
  const [workload] = objectsOf(conversion) as readonly { readonly spec: unknown }[];
  return {
    spec: workload?.spec,
    notes: linesOf(conversion).map((line) => line.replace('services.web.', '')),
  };
}

/** Converts a Deployment whose container has these fields. */
function container(fields: string): { readonly spec: unknown; readonly notes: readonly string[] } {
  const { manifest, notes } = convert(
    `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: {containers: [{name: web, image: nginx, ${fields}}]}}}}`,
  );
  return {
    spec: (parse(manifest) as { spec: unknown }).spec,
    notes: notes.map(
      ({ path, message }) => `${path.replace('spec.template.spec.containers[0].', '')}: ${message}`,
    ),
  };
}

describe('convertManifests of a Compose file', () => {
  it.each<[string, Record<string, unknown>]>([
    ['command: nginx -g "daemon off;"', { args: ['nginx', '-g', 'daemon off;'] }],
    ['command: [a, "b c"], entrypoint: [e]', { command: ['e'], args: ['a', 'b c'] }],
    ['environment: {A: 1, B: , C: "x"}', { env: { A: '1', B: '', C: 'x' } }],
    ['environment: [A=1, B=x=y]', { env: { A: '1', B: 'x=y' } }],
    [
      'ports: ["80", "8080:80", "53:53/udp"]',
      {
        ports: [
          { containerPort: 80, hostPort: 8080 },
          { containerPort: 53, hostPort: 53, protocol: 'UDP' },
        ],
      },
    ],
    [
      'ports: [{target: 80, published: "8080", protocol: tcp, mode: host, name: http}]',
      { ports: [{ name: 'http', containerPort: 80, hostPort: 8080 }] },
    ],
    [
      'deploy: {mode: global, resources: {reservations: {cpus: "0.25", memory: 64M}}}',
      { mode: 'GLOBAL', resources: { requests: { cpuMillis: '250m', memoryBytes: '64Mi' } } },
    ],
    [
      'cpus: 1.5, mem_limit: 1g, pids_limit: 9, deploy: {resources: {limits: {memory: 2gb}}}',
      { resources: { limits: { cpuMillis: '1500m', memoryBytes: '2Gi', pids: 9 } } },
    ],
    [
      'deploy: {replicas: 3, update_config: {parallelism: 2, order: stop-first, failure_action: rollback, monitor: 10s}}',
      {
        replicas: 3,
        rollout: {
          maxSurge: 0,
          maxUnavailable: 2,
          onFailure: 'ROLLBACK',
          minReadyDuration: '10s',
        },
      },
    ],
    [
      'deploy: {placement: {constraints: [node.labels.disk == ssd]}}',
      { placement: { nodeSelector: { disk: 'ssd' } } },
    ],
    ['restart: "no"', { restart: { policy: 'NEVER' } }],
    ['restart: "on-failure:3"', { restart: { policy: 'ON_FAILURE', maxRetries: 3 } }],
    ['restart: unless-stopped', {}],
    [
      'healthcheck: {test: [CMD, curl, -f, "http://x"], interval: 1m30s, retries: 2}',
      {
        livenessProbe: {
          exec: { command: ['curl', '-f', 'http://x'] },
          period: '1m30s',
          timeout: '30s',
          failureThreshold: 2,
        },
      },
    ],
    ['healthcheck: {test: [NONE]}', {}],
    ['healthcheck: {disable: true, test: curl x}', {}],
    [
      'volumes: [/cache, {type: tmpfs, target: /t, tmpfs: {size: 1m}}], tmpfs: /run',
      {
        volumes: [
          { name: 'volume-1', mountPath: '/cache', emptyDir: {} },
          {
            name: 'volume-2',
            mountPath: '/t',
            emptyDir: { medium: 'MEMORY', sizeLimitBytes: '1Mi' },
          },
          { name: 'tmpfs-1', mountPath: '/run', emptyDir: { medium: 'MEMORY' } },
        ],
      },
    ],
    [
      'user: "1000:1000", read_only: true, cap_drop: [ALL], security_opt: ["no-new-privileges:true"]',
      {
        security: {
          runAsUser: 1000,
          runAsGroup: 1000,
          readOnlyRootFilesystem: true,
          capabilitiesDrop: ['ALL'],
          noNewPrivileges: true,
        },
      },
    ],
    [
      'network_mode: host, extra_hosts: ["db:10.0.0.1"], dns: 1.1.1.1',
      {
        network: {
          hostNetwork: true,
          dnsServers: ['1.1.1.1'],
          extraHosts: [{ ip: '10.0.0.1', hostnames: ['db'] }],
        },
      },
    ],
    [
      'init: true, shm_size: 64m, ulimits: {nofile: {soft: 1, hard: 2}, core: 0}, stop_grace_period: 30s',
      {
        init: true,
        shmSizeBytes: '64Mi',
        ulimits: [
          { name: 'nofile', soft: 1, hard: 2 },
          { name: 'core', soft: 0 },
        ],
        terminationGracePeriod: '30s',
      },
    ],
  ])('converts %s without a note', (fields, expected) => {
    const { spec, notes } = service(fields);
    expect(notes).toEqual([]);
    expect(spec).toEqual({ image: 'nginx', ...expected });
  });

  it.each([
    ['build: .', 'build: has no equivalent: build and push the image first, then set image'],
    ['nonsense: 1', 'nonsense: has no equivalent'],
    ['ports: ["80-90:80"]', 'ports[0]: left out: 80-90:80 is no single port; declare each port'],
    ['ports: ["127.0.0.1:80:80"]', 'the address 127.0.0.1 was left out'],
    [
      'volumes: ["./src:/src"]',
      'volumes[0]: left out: ./src is a path relative to the Compose file',
    ],
    ['volumes: ["/srv:/srv"]', '/srv must exist on each node'],
    ['environment: [SECRET]', 'SECRET has no value and was left out'],
    ['stop_signal: SIGQUIT', 'stop_signal: has no equivalent: containers are stopped with SIGTERM'],
    ['mem_limit: much', 'mem_limit: left out: expected a size such as 512m, got "much"'],
    ['command: "a \'b"', "command: left out: the quote ' is not closed"],
    ['deploy: {placement: {constraints: [node.role == manager]}}', 'node.role == manager has no'],
  ])('names what is left out of %s', (fields, note) => {
    expect(service(fields).notes.join('\n')).toContain(note);
  });

  it.each([
    ['', { maxSurge: 0, maxUnavailable: 1 }],
    [', deploy: {update_config: {parallelism: 2}}', { maxSurge: 0, maxUnavailable: 2 }],
    [', deploy: {update_config: {order: start-first}}', { maxSurge: 1 }],
  ])('stops a replica with a named volume before its successor starts%s', (fields, rollout) => {
    const { spec, notes } = service(`volumes: ["data:/data:ro"]${fields}`);
    expect(spec).toEqual({
      image: 'nginx',
      rollout,
      volumes: [{ name: 'data', mountPath: '/data', readOnly: true, named: { name: 'data' } }],
    });
    expect(notes).toEqual([
      'volumes[0]: each node has its own volume data, which starts empty, and replicas do not return to the node with their data: label the node that has the data, and set placement.nodeSelector',
    ]);
  });

  it('replaces variables as Compose does', () => {
    const { spec, notes } = service(
      'environment: {A: "${A}", B: "${B:-b}", C: "${E-c}", D: "$A-$$A", F: "${A:+set}", G: "${G:?needed}"}',
      { A: 'a', E: '' },
    );
    expect(spec).toEqual({
      image: 'nginx',
      env: { A: 'a', B: 'b', C: '', D: 'a-$A', F: 'set', G: '' },
    });
    expect(notes).toEqual([
      'environment.G: the variable G is not set and became an empty text: needed',
    ]);
  });

  it('merges anchors and ignores extensions', () => {
    const { manifest, notes } = convert(
      'x-base: &base\n  image: nginx\nservices:\n  web:\n    <<: *base\n    scale: 2\n',
    );
    expect(notes).toEqual([]);
    expect(parse(manifest)).toEqual({
      kind: 'Workload',
      name: 'web',
      spec: { image: 'nginx', replicas: 2 },
    });
  });

  it('converts or names every key of a service', () => {
    const words = fc.stringMatching(/^[a-w][a-z_]{0,12}$/);
    fc.assert(
      fc.property(fc.uniqueArray(words, { maxLength: 5 }), (keys) => {
        const text = `services: {web: {image: nginx, ${keys.map((key) => `zz_${key}: 1`).join(', ')}}}`;
        expect(convert(text).notes.map(({ path }) => path)).toEqual(
          keys.map((key) => `services.web.zz_${key}`),
        );
      }),
    );
  });
});

describe('convertManifests of Kubernetes objects', () => {
  it.each<[string, Record<string, unknown>]>([
    [
      'resources: {requests: {cpu: 1, memory: 64Mi}, limits: {cpu: 500m}}',
      {
        resources: {
          requests: { cpuMillis: '1000m', memoryBytes: '64Mi' },
          limits: { cpuMillis: '500m' },
        },
      },
    ],
    [
      'readinessProbe: {httpGet: {path: /x, port: 80}, periodSeconds: 5, failureThreshold: 2}',
      {
        ports: [{ containerPort: 80 }],
        readinessProbe: { http: { port: '80', path: '/x' }, period: '5s', failureThreshold: 2 },
      },
    ],
    [
      'livenessProbe: {exec: {command: [ls]}, initialDelaySeconds: 3}',
      { livenessProbe: { exec: { command: ['ls'] }, initialDelay: '3s' } },
    ],
    ['env: [{name: A, value: "1"}, {name: B}]', { env: { A: '1', B: '' } }],
    ['imagePullPolicy: Always', { imagePull: { policy: 'ALWAYS' } }],
    [
      'securityContext: {runAsUser: 5, allowPrivilegeEscalation: false, seccompProfile: {type: RuntimeDefault}}',
      { security: { runAsUser: 5, noNewPrivileges: true, seccompProfile: 'RuntimeDefault' } },
    ],
  ])('converts %s of a container without a note', (fields, expected) => {
    const { spec, notes } = container(fields);
    expect(notes).toEqual([]);
    expect(spec).toEqual({
      image: 'nginx',
      replicas: 1,
      terminationGracePeriod: '30s',
      ...expected,
    });
  });

  it.each([
    ['lifecycle: {preStop: {}}', 'lifecycle: has no equivalent: use preStopDelay'],
    ['nonsense: 1', 'nonsense: has no equivalent'],
    [
      'env: [{name: A, valueFrom: {fieldRef: {fieldPath: x}}}]',
      'env[0].valueFrom: A was left out: write the value',
    ],
    [
      'envFrom: [{secretRef: {name: s}}]',
      'envFrom[0]: left out: s is not in this input; write each key to keys of spec.secrets',
    ],
    ['volumeMounts: [{name: x, mountPath: /x}]', 'volumeMounts[0]: left out: the volume x'],
    ['readinessProbe: {httpGet: {port: 80, scheme: HTTPS}}', 'HTTPS has no equivalent'],
  ])('names what is left out of %s of a container', (fields, note) => {
    expect(container(fields).notes.join('\n')).toContain(note);
  });

  it('converts a List of a ConfigMap, a DaemonSet that refers to the ConfigMap, and a Job', () => {
    const { manifest, notes } = convert(`
apiVersion: v1
kind: List
items:
  - { apiVersion: v1, kind: ConfigMap, metadata: { name: cfg }, data: { LEVEL: info, N: "1" } }
  - apiVersion: apps/v1
    kind: DaemonSet
    metadata: { name: Log.Agent, labels: { app: log } }
    spec:
      updateStrategy: { type: RollingUpdate, rollingUpdate: { maxUnavailable: 1 } }
      template:
        spec:
          containers:
            - image: log:1
              envFrom: [{ configMapRef: { name: cfg }, prefix: L_ }]
              env: [{ name: X, valueFrom: { configMapKeyRef: { name: cfg, key: N } } }]
          tolerations: [{ operator: Exists, effect: NoSchedule }]
  - { apiVersion: batch/v1, kind: Job, metadata: { name: web } }
`);
    const [config, workload] = manifest.split('---\n').map((text) => parse(text) as unknown);
    expect(config).toEqual({ kind: 'Config', name: 'cfg', data: { LEVEL: 'info', N: '1' } });
    expect(workload).toEqual({
      kind: 'Workload',
      name: 'log-agent',
      spec: {
        image: 'log:1',
        configs: [
          {
            name: 'cfg',
            keys: [
              { key: 'LEVEL', env: 'L_LEVEL' },
              { key: 'N', env: 'L_N' },
              { key: 'N', env: 'X' },
            ],
          },
        ],
        placement: { tolerations: [{ operator: 'EXISTS', effect: 'NO_SCHEDULE' }] },
        terminationGracePeriod: '30s',
        rollout: { maxUnavailable: 1 },
        labels: { app: 'log' },
        mode: 'GLOBAL',
      },
    });
    expect(notes.map(formatProblem)).toEqual([
      expect.stringContaining('items[1].metadata.name: renamed to log-agent'),
      expect.stringContaining('items[2].kind: Job has no equivalent'),
    ]);
  });

  it('converts volumes and variables of one Secret to one reference, and names no value', () => {
    const { manifest, notes } = convert(`
{ apiVersion: v1, kind: Secret, metadata: { name: db }, stringData: { password: s3cret, user: u } }
---
apiVersion: v1
kind: Pod
metadata: { name: web }
spec:
  imagePullSecrets: [{ name: registry }]
  containers:
    - image: web:1
      env: [{ name: DB_USER, valueFrom: { secretKeyRef: { name: db, key: user } } }]
      volumeMounts:
        - { name: creds, mountPath: /etc/db, readOnly: true }
        - { name: conf, mountPath: /etc/app }
  volumes:
    - { name: creds, secret: { secretName: db, defaultMode: 256 } }
    - { name: conf, configMap: { name: app, items: [{ key: a, path: app.conf }] } }
`);
    expect(parse(manifest)).toMatchObject({
      spec: {
        imagePull: { secret: 'registry' },
        secrets: [
          {
            ...{ name: 'db', mountPath: '/etc/db', mode: 0o400 },
            keys: [{ key: 'password' }, { key: 'user' }, { key: 'user', env: 'DB_USER' }],
          },
        ],
        configs: [{ name: 'app', mountPath: '/etc/app', keys: [{ key: 'a', file: 'app.conf' }] }],
      },
    });
    expect(notes.map(formatProblem)).toEqual([
      expect.stringContaining(
        'cloudlessctl secret create db --from-file password=PATH --from-file user=PATH',
      ),
    ]);
    expect(manifest + notes.map(formatProblem).join()).not.toContain('s3cret');
  });

  it('converts the secrets of a Compose service to files at the same paths', () => {
    const { manifest, notes } = convert(`
name: shop
services:
  web: { image: web, secrets: [db_password, { source: api, target: key, mode: 0440 }] }
secrets:
  db_password: { file: ./db.txt }
  api: { external: true }
`);
    expect(parse(manifest)).toMatchObject({
      spec: {
        secrets: [
          {
            ...{ name: 'shop-secrets', mountPath: '/run/secrets', mode: 0o440 },
            keys: [{ key: 'db_password' }, { key: 'api', file: 'key' }],
          },
        ],
      },
    });
    expect(notes.map(({ message }) => message)).toEqual([
      'create them with: cloudlessctl secret create shop-secrets --from-file db_password=./db.txt --prompt api',
    ]);
  });

  it('names further containers and init containers', () => {
    const { notes } = convert(
      '{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {initContainers: [], containers: [{image: a}, {name: side, image: b}]}}',
    );
    expect(notes.map(({ path, message }) => `${path}: ${message}`)).toEqual([
      'spec.initContainers: has no equivalent: do such work in the entry point of the image',
      'spec.containers[1]: left out: a workload has one container; make side a workload of its own',
    ]);
  });
});

describe('convertManifests', () => {
  it.each([
    ['', 'in.yaml: contains nothing to convert'],
    ['a: [', /^in\.yaml:1:\d+: /],
  ])('refuses the file %j', (text, problem) => {
    expect(convertManifests([aFile(text)], {})).toEqual({
      problem: typeof problem === 'string' ? problem : expect.stringMatching(problem),
    });
  });

  it.each(['just a text', '{a: 1}', '[1]'])('finds no workload in %s', (text) => {
    const { manifest, notes } = convert(text);
    expect({ manifest, messages: notes.map(({ message }) => message) }).toEqual({
      manifest: '',
      messages: ['left out: neither a Compose file with services nor a Kubernetes object'],
    });
  });

  it('names values that a manifest does not accept', () => {
    expect(
      convert('services: {web: {image: nginx, stop_grace_period: soon}}').notes.map(formatProblem),
    ).toEqual([
      expect.stringMatching(
        /^the converted manifest:\d+:\d+: spec\.terminationGracePeriod: expected/,
      ),
    ]);
  });

  it('returns a manifest or a problem, and does not throw, for any YAML value', () => {
    const kinds = ['Compose', 'Pod', 'Service', 'Ingress'];
    fc.assert(
      fc.property(fc.json(), fc.constantFrom(...kinds), (json, kind) => {
        const text =
          kind === 'Compose'
            ? `{"services": {"a": ${json}}}`
            : `{"apiVersion": "v1", "kind": "${kind}", "spec": ${json}}`;
        expect(convertManifests([aFile(text)], {})).toBeDefined();
      }),
    );
  });
});
