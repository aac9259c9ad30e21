import { clone, create } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  PlanSchema,
  ServiceCondition_Type,
  ServiceSchema,
  WorkloadPlan_Action,
  withBalancingDefaults,
  withServiceDefaults,
  type Service,
} from '@cloudless/api';
import { aWorkload, runCli, type CliOptions } from '../../testing/run-cli.js';
import { anInteractiveTerminal } from '../../testing/terminal-answers.js';

const WORKLOAD = 'name: web\nspec: {image: nginx}\n';
const SERVICE = 'kind: Service\nname: web\nspec: {workload: web, ports: [{port: 80}]}\n';

const toKey = ({ namespace, name }: { readonly namespace: string; readonly name: string }) =>
  `${namespace === '' ? 'default' : namespace}/${name}`;
const aService = (name: string, fields: Partial<Service> = {}): Service =>
  create(ServiceSchema, {
    ...{
      namespace: 'default',
      name,
      generation: 1n,
      loadBalancer: withBalancingDefaults(undefined),
    },
    spec: withServiceDefaults(
      create(ServiceSchema, { spec: { workload: name, ports: [{ port: 80 }] } }).spec as never,
    ),
    status: { clusterIp: '10.96.0.20', dnsName: `${name}.default.svc.cloudless.internal` },
    ...(fields as object),
  });

/**
 * Creates a cluster that keeps services, and creates every workload.
 * @param refused - Name of a service that cannot be created or changed.
 * @returns The recorded changes in order, the services by name, and the options for runCli.
 */
function aCluster(existing: readonly Service[] = [], refused?: string) {
  const calls: string[] = [];
  const services = new Map(existing.map((service) => [toKey(service), service]));
  const find = (name: { namespace: string; name: string }): Service => {
    const found = services.get(toKey(name));
    if (found === undefined) throw new ConnectError('service not found', Code.NotFound);
    return clone(ServiceSchema, found);
  };
  const check = (name: string): void => {
    if (name === refused) throw new ConnectError(`${name} is refused`, Code.PermissionDenied);
  };
  const put = (service: Service): Service => {
    services.set(toKey(service), service);
    return service;
  };
  const options: CliOptions = {
    network: {
      getService: find,
      listServices: () => ({ services: [...services.values()], nextPageToken: '', revision: 1n }),
      createService: ({ name, spec, labels, loadBalancer, requestId }) => {
        check(name);
        calls.push(`create service ${name}${requestId === '' ? '' : ` as ${requestId}`}`);
        const fields = { labels, loadBalancer: withBalancingDefaults(loadBalancer) };
        return put(aService(name, { ...fields, spec: withServiceDefaults(spec as never) }));
      },
      updateService: ({ name, namespace, spec, labels, updateMask, expectedGeneration }) => {
        check(name);
        const service = find({ namespace, name });
        calls.push(
          `update service ${name} ${updateMask?.paths.join() ?? ''} at ${expectedGeneration}`,
        );
        service.spec = withServiceDefaults(spec as never);
        for (const [key, value] of Object.entries(labels)) {
          if (value === '') delete service.labels[key];
          else service.labels[key] = value;
        }
        return put(service);
      },
      updateLoadBalancerConfig: ({ service: name, namespace, config, updateMask }) => {
        const service = find({ namespace, name });
        calls.push(`update balancing ${name} ${updateMask?.paths.join() ?? ''}`);
        service.loadBalancer = withBalancingDefaults(config);
        put(service);
        return service.loadBalancer;
      },
      deleteService: ({ name, namespace }) => {
        find({ namespace, name });
        calls.push(`delete service ${name}`);
        services.delete(toKey({ namespace, name }));
        return {};
      },
    },
    coordinator: {
      createPlan: ({ changes, validateOnly }) => {
        if (!validateOnly) calls.push('plan workloads');
        return create(PlanSchema, {
          ...{ id: 'a', changes },
          workloads: changes.map(({ change }) => ({
            namespace: 'default',
            name: (change.value as { name: string }).name,
            action:
              change.case === 'delete' ? WorkloadPlan_Action.DELETE : WorkloadPlan_Action.CREATE,
          })),
        });
      },
      executePlan: () => {
        calls.push('execute workloads');
        return { workloads: [aWorkload({ name: 'web', generation: 1n })] };
      },
      getWorkload: ({ name }) => aWorkload({ name }),
      deleteWorkload: ({ name }) => {
        calls.push(`delete workload ${name}`);
        return aWorkload({ name });
      },
      listWorkloads: () => ({ workloads: [] }),
    },
  };
  return { calls, services, options };
}

const apply = (text: string, options: CliOptions, ...flags: string[]) =>
  runCli(['apply', '-f', 'a.yaml', ...flags], { ...options, files: { 'a.yaml': text } });

describe('apply with services', () => {
  it.each([
    { name: 'a workload of the same file', text: `${SERVICE}---\n${WORKLOAD}`, notes: [] },
    {
      name: 'no workload',
      text: SERVICE,
      notes: ['note: namespace default has no workload web'],
    },
  ])('names a missing workload only when it is still missing, with $name', async (row) => {
    const { calls, options } = aCluster();
    const readService = (name: string): Service => {
      const holds = calls.includes('execute workloads');
      const reason = holds ? '' : 'NoWorkloadSelected';
      const message = holds ? '' : 'namespace default has no workload web';
      const condition = { type: ServiceCondition_Type.HAS_ENDPOINTS, holds, reason, message };
      const { status } = create(ServiceSchema, { status: { conditions: [condition] } });
      return Object.assign(aService(name), { status });
    };
    const { stdout, stderr } = await apply(row.text, {
      ...options,
      network: {
        ...options.network,
        createService: ({ name }) => readService(name),
        getService: ({ name }) => {
          if (!calls.includes('execute workloads'))
            throw new ConnectError('service not found', Code.NotFound);
          return readService(name);
        },
      },
    });
    expect(stderr).toBe('');
    expect(stdout.split('\n').filter((line) => line.startsWith('note:'))).toEqual(row.notes);
  });

  it.each([
    ['after', `${WORKLOAD}---\n${SERVICE}`],
    ['before', `${SERVICE}---\n${WORKLOAD}`],
  ])('creates a service before its workload, when it comes %s in the file', async (_, text) => {
    const { calls, options } = aCluster();
    const result = await apply(text, options, '--request-id', 'r');
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(result.stdout).toBe(`service default/web: create
  spec.ports: (absent) -> [{"name":"port-80","port":80}]
  spec.workload: (absent) -> "web"
workload default/web: create
service default/web: created (web.default.svc.cloudless.internal, 10.96.0.20)
workload default/web: created
`);
    expect(calls).toEqual([
      ...['plan workloads', 'create service web as r/service/default/web', 'execute workloads'],
    ]);
  });

  it('changes nothing when a service is as described, also after a second apply', async () => {
    const text =
      'kind: Service\nname: web\nlabels: {a: b}\nspec: {type: NodePort, ports: [{port: 80}]}\nloadBalancer: {algorithm: round-robin}\n';
    const { calls, services, options } = aCluster();
    await apply(text, options);
    const chosen = services.get('default/web')?.spec?.ports[0];
    if (chosen !== undefined) chosen.nodePort = 30_123; // as the coordinator chooses
    calls.length = 0;
    const result = await apply(text, options);
    expect(result).toMatchObject({ exitCode: 0, stdout: 'service default/web: unchanged\n' });
    expect(calls).toEqual([]);
  });

  it('replaces spec, labels and balancing, and shows the fields', async () => {
    const current = aService('web', { labels: { old: '1', kept: '1' } });
    const text = `kind: Service
name: web
labels: { kept: "1", new: "1" }
spec: { ports: [{ port: 81 }], selector: { app: web } }
loadBalancer: { algorithm: source-hash }
`;
    const { calls, services, options } = aCluster([current]);
    const { stdout, exitCode } = await apply(text, options);
    expect(exitCode).toBe(0);
    expect(stdout).toBe(`service default/web: update
  spec.ports: [{"name":"port-80","port":80}] -> [{"name":"port-81","port":81}]
  spec.selector["app"]: (absent) -> "web"
  spec.workload: "web" -> (absent)
  labels["new"]: (absent) -> "1"
  labels["old"]: "1" -> (absent)
  loadBalancer.algorithm: (absent) -> SOURCE_HASH
service default/web: updated (web.default.svc.cloudless.internal, 10.96.0.20)
`);
    expect(calls).toEqual(['update service web * at 1', 'update balancing web *']);
    expect(services.get('default/web')?.labels).toEqual({ kept: '1', new: '1' });
    calls.length = 0;
    expect((await apply(text, options)).stdout).toBe('service default/web: unchanged\n');
  });

  it('applies the output of get in YAML and in the form of manifests', async () => {
    const { calls, options } = aCluster([aService('web', { labels: { a: 'b' } })]);
    for (const format of ['yaml', 'json', 'manifest']) {
      for (const get of [
        ['service', 'get', 'web'],
        ['service', 'list'],
      ]) {
        const { stdout } = await runCli([...get, '-o', format], options);
        expect(await apply(stdout, options)).toMatchObject({
          ...{ exitCode: 0, stderr: '', stdout: 'service default/web: unchanged\n' },
        });
      }
    }
    expect(calls).toEqual([]);
  });

  it('only shows services and workloads with --dry-run', async () => {
    const { calls, options } = aCluster([aService('web')]);
    const text = `${WORKLOAD}---\n${SERVICE}---\n${SERVICE.replace('web', 'new')}`;
    const { stdout } = await apply(text, options, '--dry-run', '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({
      plans: [{ workloads: [{ name: 'web', action: 'CREATE' }] }],
      services: [
        { name: 'web', action: 'NOTHING', changes: [] },
        {
          name: 'new',
          action: 'CREATE',
          changes: [{ path: 'spec.ports' }, { path: 'spec.workload' }],
        },
      ],
    });
    const plain = await apply(text, options, '--dry-run');
    expect(plain.stdout).toMatch(
      /^service default\/web: unchanged\nservice default\/new: create\n[^]*workload default\/web: create\n$/,
    );
    expect(calls).toEqual([]);
  });

  it('prints workloads and services with -o json', async () => {
    const { options } = aCluster();
    const { stdout } = await apply(`${WORKLOAD}---\n${SERVICE}`, options, '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({
      workloads: [{ name: 'web' }],
      services: [{ kind: 'Service', name: 'web', status: { clusterIp: '10.96.0.20' } }],
    });
  });

  it('names what was applied before a failure, and does not apply workloads', async () => {
    const { calls, options } = aCluster([], 'bad');
    const text = ['a', 'bad', 'c'].map((name) => SERVICE.replace('web', name)).join('---\n');
    const result = await apply(`${text}---\n${WORKLOAD}`, options);
    expect(result.exitCode).toBe(1);
    expect(result.stderr).toContain(
      'cloudlessctl: applied before the failure: 1 service; not applied: service default/bad, service default/c\n',
    );
    expect(result.stderr).toContain('bad is refused');
    expect(calls).toEqual(['plan workloads', 'create service a']);
  });

  it.each([
    [
      'a service of a workload',
      SERVICE,
      [],
      [aService('web', { ownerWorkload: 'web' })],
      4,
      'nothing was applied:\nservice default/web: belongs to spec.expose of workload default/web; remove this document, or first apply the workload without expose\n',
    ],
    [
      'a service that would become headless',
      SERVICE.replace('{workload', '{headless: true, workload'),
      [],
      [aService('web')],
      4,
      'service default/web: spec.headless: cannot change; delete the service and create it again\n',
    ],
    [
      'a service that the workload of a manifest exposes',
      `name: web\nspec: {image: a, expose: [{port: 80}]}\n---\n${SERVICE}`,
      [],
      [],
      2,
      'a.yaml: the service default/web is created by spec.expose of the workload of that name; remove one of them\n',
    ],
    [
      'a stored plan',
      SERVICE,
      ['--plan'],
      [],
      2,
      'a stored plan contains workloads only, and the manifests contain service default/web; use --dry-run, or keep the workloads in files of their own\n',
    ],
    [
      'a label of another set',
      `${SERVICE}labels: {apply-set: bank}\n`,
      ['--set', 'shop'],
      [],
      2,
      'service default/web: the manifest has the label apply-set=bank, and --set is shop; remove the label\n',
    ],
  ])('refuses %s', async (_title, text, flags, existing, exitCode, message) => {
    const { calls, options } = aCluster(existing);
    const result = await apply(text, options, ...flags);
    expect(result).toMatchObject({ exitCode, stdout: '' });
    expect(result.stderr).toContain(message);
    expect(calls).toEqual([]);
  });

  it('labels the services of a set, and deletes those that left the set last', async () => {
    const inSet = { labels: { 'apply-set': 'shop' } };
    const other = aService('other', { labels: { 'apply-set': 'bank' } });
    const { calls, services, options } = aCluster([aService('old', inSet), other]);
    const text = `${WORKLOAD}---\n${SERVICE}`;
    const flags = ['--set', 'shop', '--prune'];
    const terminal = anInteractiveTerminal('n\n');
    expect((await apply(text, { ...options, ...terminal }, ...flags)).stderr).toContain(
      'Apply, and delete 1 service? [y/N]',
    );
    expect(calls).toEqual(['plan workloads']);
    calls.length = 0;
    const { stdout } = await apply(text, options, ...flags);
    expect(stdout).toContain('workload default/web: create\nservice default/old: delete\n');
    expect(stdout).toMatch(/workload default\/web: created\nservice default\/old: deleted\n$/);
    expect(calls).toEqual([
      ...['plan workloads', 'create service web', 'execute workloads', 'delete service old'],
    ]);
    expect(services.get('default/web')?.labels).toEqual({ 'apply-set': 'shop' });
    expect([...services.keys()]).toEqual(['default/other', 'default/web']);
  });
});

describe('delete -f with services', () => {
  const files = { 'a.yaml': `${SERVICE}---\n${WORKLOAD}` };

  it('deletes the workloads, then the services', async () => {
    const { calls, options } = aCluster([aService('web')]);
    const result = await runCli(['delete', '-f', 'a.yaml', '--yes'], { ...options, files });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(result.stdout).toMatch(/service default\/web: deleted\n$/);
    expect(calls).toEqual(['delete workload web', 'delete service web']);
  });

  it('asks with the numbers of both, and only shows with --dry-run', async () => {
    const { calls, options } = aCluster([aService('web')]);
    const terminal = anInteractiveTerminal('n\n');
    const asked = await runCli(['delete', '-f', 'a.yaml'], { ...options, files, ...terminal });
    expect(asked.stderr).toContain('Delete 1 workload and 1 service? [y/N]');
    const shown = await runCli(['delete', '-f', 'a.yaml', '--dry-run'], { ...options, files });
    expect(shown.stdout).toContain('service default/web: delete\n');
    expect(calls).toEqual([]);
  });

  it('reports a service that does not exist, unless --ignore-not-found', async () => {
    const { options } = aCluster();
    const only = { ...options, files: { 'a.yaml': SERVICE } };
    expect((await runCli(['delete', '-f', 'a.yaml', '--yes'], only)).exitCode).toBe(3);
    const ignored = ['delete', '-f', 'a.yaml', '--yes', '--ignore-not-found'];
    expect(await runCli(ignored, only)).toMatchObject({
      ...{ exitCode: 0, stdout: 'service default/web: not found\n' },
    });
  });
});
