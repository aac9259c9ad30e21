import { clone, create } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  PlanSchema,
  RolloutStatusSchema,
  RolloutStatus_Phase,
  RouteCondition_Type,
  RouteSchema,
  ServiceSchema,
  WorkloadPlan_Action,
  withRouteDefaults,
  type Route,
} from '@cloudless/api';
import { aWorkload, runCli, type CliOptions } from '../../testing/run-cli.js';
import { createWatch } from '../../testing/a-rollout.js';
import { anInteractiveTerminal } from '../../testing/terminal-answers.js';

const WORKLOAD = 'name: web\nspec: {image: nginx}\n';
const SERVICE = 'kind: Service\nname: web\nspec: {workload: web, ports: [{port: 80}]}\n';
const ROUTE = `kind: Route
name: shop
spec:
  hosts: [shop.example.com]
  rules: [{ service: web, port: "80" }]
`;
const ALL = [ROUTE, WORKLOAD, SERVICE].join('---\n');

const aRoute = (name: string, fields: Partial<Pick<Route, 'labels'>> = {}): Route =>
  create(RouteSchema, {
    ...{ namespace: 'default', name, uid: 'a', generation: 3n, ...fields },
    spec: withRouteDefaults(
      create(RouteSchema, {
        spec: { hosts: [`${name}.example.com`], rules: [{ service: 'web', port: '80' }] },
      }).spec as never,
    ),
    status: { conditions: [{ type: RouteCondition_Type.SERVICES_EXIST, holds: true }] },
  });

/**
 * Creates a cluster that keeps routes, and creates every workload and service.
 * @param refused - Name of a route that cannot be created.
 * @returns The recorded changes in order, the routes by name, and the options for runCli.
 */
function aCluster(existing: readonly Route[] = [], refused?: string) {
  const calls: string[] = [];
  const routes = new Map(existing.map((route) => [route.name, route]));
  const find = ({ name }: { readonly name: string }): Route => {
    const found = routes.get(name);
    if (found === undefined) throw new ConnectError('route not found', Code.NotFound);
    return clone(RouteSchema, found);
  };
  const missing = (): never => {
    throw new ConnectError('service not found', Code.NotFound);
  };
  const network: CliOptions['network'] = {
    getRoute: find,
    listRoutes: () => ({ routes: [...routes.values()] }),
    createRoute: ({ name, spec, labels, requestId }) => {
      if (name === refused) throw new ConnectError(`${name} is refused`, Code.AlreadyExists);
      calls.push(`create route ${name}${requestId === '' ? '' : ` as ${requestId}`}`);
      const route = { ...aRoute(name), spec: withRouteDefaults(spec as never), labels };
      routes.set(name, route);
      return route;
    },
    updateRoute: ({ name, spec, labels, updateMask, expectedGeneration }) => {
      calls.push(`update route ${name} ${updateMask?.paths.join() ?? ''} at ${expectedGeneration}`);
      const route = { ...find({ name }), spec: withRouteDefaults(spec as never) };
      for (const [key, value] of Object.entries(labels)) {
        if (value === '') delete route.labels[key];
        else route.labels[key] = value;
      }
      routes.set(name, route);
      return route;
    },
    deleteRoute: ({ name }) => {
      find({ name });
      calls.push(`delete route ${name}`);
      routes.delete(name);
      return {};
    },
    getService: missing,
    listServices: () => ({
      services: [{ namespace: 'default', name: 'old', labels: { 'apply-set': 'shop' } }],
    }),
    createService: ({ name, spec, labels }) => {
      calls.push(`create service ${name}`);
      return create(ServiceSchema, {
        ...{ namespace: 'default', name, labels },
        ...(spec === undefined ? {} : { spec }),
      });
    },
    deleteService: ({ name }) => (calls.push(`delete service ${name}`), {}),
  };
  const coordinator: CliOptions['coordinator'] = {
    createPlan: ({ changes }) =>
      create(PlanSchema, {
        ...{ id: 'a', changes },
        workloads: changes.map(({ change }) => ({
          namespace: 'default',
          name: (change.value as { name: string }).name,
          action: WorkloadPlan_Action.CREATE,
        })),
      }),
    executePlan: () => {
      calls.push('execute workloads');
      return { workloads: [aWorkload()] };
    },
    deleteWorkload: ({ name }) => (calls.push(`delete workload ${name}`), aWorkload({ name })),
    listWorkloads: () => ({ workloads: [] }),
  };
  return { calls, routes, options: { network, coordinator } satisfies CliOptions };
}

const apply = (text: string, options: CliOptions, ...flags: string[]) =>
  runCli(['apply', '-f', 'a.yaml', ...flags], { ...options, files: { 'a.yaml': text } });

describe('apply with routes', () => {
  it('creates a route after the service and the workload, whatever the order of the file', async () => {
    const { calls, options } = aCluster();
    const result = await apply(ALL, options, '--request-id', 'r');
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(result.stdout).toMatch(
      /^service default\/web: create\n[^]*workload default\/web: create/,
    );
    expect(result.stdout).toContain(`route default/shop: create
  spec.hosts: (absent) -> ["shop.example.com"]
`);
    expect(result.stdout).toMatch(
      /workload default\/web: updated\nroute default\/shop: created\n$/,
    );
    expect(calls).toEqual([
      ...['create service web', 'execute workloads', 'create route shop as r/route/default/shop'],
    ]);
  });

  it('prints conditions of a new route that do not hold', async () => {
    const { options } = aCluster();
    const message = 'secret "default/shop-tls" does not exist';
    const conditions = [{ type: RouteCondition_Type.CERTIFICATE_USABLE, message }];
    const network: CliOptions['network'] = {
      ...options.network,
      createRoute: () =>
        create(RouteSchema, { namespace: 'default', name: 'shop', status: { conditions } }),
    };
    const { stdout } = await apply(ROUTE, { ...options, network });
    expect(stdout).toMatch(
      /route default\/shop: created\nnote: secret "default\/shop-tls" does not/,
    );
  });

  it('replaces spec and labels, shows the fields, and changes nothing the second time', async () => {
    const current = aRoute('shop', { labels: { old: '1', kept: '1' } });
    const text = `${ROUTE}  tls: { certificateSecret: shop-tls }\nlabels: { kept: "1", new: "1" }\n`;
    const { calls, routes, options } = aCluster([current]);
    expect((await apply(text, options)).stdout).toBe(`route default/shop: update
  spec.tls.certificateSecret: (absent) -> "shop-tls"
  labels["new"]: (absent) -> "1"
  labels["old"]: "1" -> (absent)
route default/shop: updated
`);
    expect(calls).toEqual(['update route shop * at 3']);
    expect(routes.get('shop')?.labels).toEqual({ kept: '1', new: '1' });
    calls.length = 0;
    expect((await apply(text, options)).stdout).toBe('route default/shop: unchanged\n');
    expect(calls).toEqual([]);
  });

  it('applies the output of get in YAML, in JSON and in the form of manifests', async () => {
    const { calls, options } = aCluster([aRoute('shop', { labels: { a: 'b' } })]);
    for (const format of ['yaml', 'json', 'manifest']) {
      for (const get of [
        ['route', 'get', 'shop'],
        ['route', 'list'],
      ]) {
        const { stdout } = await runCli([...get, '-o', format], options);
        expect(stdout).toContain('Route');
        expect(await apply(stdout, options)).toMatchObject({
          ...{ exitCode: 0, stderr: '', stdout: 'route default/shop: unchanged\n' },
        });
      }
    }
    expect(calls).toEqual([]);
  });

  it('only shows routes with --dry-run', async () => {
    const { calls, options } = aCluster([aRoute('shop')]);
    const text = `${ALL}---\n${ROUTE.replaceAll('shop', 'new')}`;
    const { stdout } = await apply(text, options, '--dry-run', '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({
      plans: [{ workloads: [{ name: 'web', action: 'CREATE' }] }],
      services: [{ name: 'web', action: 'CREATE' }],
      routes: [
        { name: 'shop', action: 'NOTHING', changes: [] },
        { name: 'new', action: 'CREATE' },
      ],
    });
    const plain = await apply(text, options, '--dry-run');
    expect(plain.stdout).toMatch(
      /workload default\/web: create\n[^]*route default\/shop: unchanged\nroute default\/new: create\n/,
    );
    expect(calls).toEqual([]);
  });

  it('prints workloads, services and routes with -o json', async () => {
    const { options } = aCluster();
    const { stdout } = await apply(ALL, options, '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({
      workloads: [{ name: 'web' }],
      services: [{ kind: 'Service', name: 'web' }],
      routes: [{ kind: 'Route', name: 'shop', spec: { hosts: ['shop.example.com'] } }],
    });
  });

  it('names what was applied before a route is refused', async () => {
    const { calls, options } = aCluster([], 'shop');
    const result = await apply(`${ALL}---\n${ROUTE.replaceAll('shop', 'b')}`, options);
    expect(result.exitCode).not.toBe(0);
    expect(result.stderr).toContain(
      'applied before the failure: 1 service, 1 workload; not applied: route default/shop, route default/b\n',
    );
    expect(calls).toEqual(['create service web', 'execute workloads']);
  });

  it('updates routes before new ones, which may take hosts that an update frees', async () => {
    const { calls, options } = aCluster([aRoute('shop')]);
    const text = `${ROUTE.replaceAll('shop', 'a')}---\n${ROUTE.replace('shop.', 'b.')}`;
    expect((await apply(text, options)).exitCode).toBe(0);
    expect(calls).toEqual(['update route shop * at 3', 'create route a']);
  });

  it.each([
    [
      'are complete',
      aWorkload(),
      0,
      ['delete route old', 'create route shop', 'delete service old'],
      '',
    ],
    [
      'fail',
      aWorkload({
        status: { rollout: create(RolloutStatusSchema, { phase: RolloutStatus_Phase.FAILED }) },
      }),
      8,
      [],
      'not applied, because the workloads are not complete: route default/old, route default/shop, service default/old\n',
    ],
  ])('with --wait when the workloads %s, makes these changes', async (...row) => {
    const [, workload, exitCode, changes, notice] = row;
    const { calls, options } = aCluster([aRoute('old', { labels: { 'apply-set': 'shop' } })]);
    const coordinator = {
      ...options.coordinator,
      watchWorkloads: createWatch(workload, 'synced'),
    };
    const result = await apply(
      ALL,
      { ...options, coordinator },
      ...['--wait', '--set', 'shop', '--prune'],
    );
    expect({ ...result, stdout: '' }).toMatchObject({ exitCode });
    expect(result.stderr).toContain(notice);
    expect(calls).toEqual(['create service web', 'execute workloads', ...changes]);
  });

  it.each([
    [
      'a stored plan',
      ROUTE,
      ['--plan'],
      'a stored plan contains workloads only, and the manifests contain route default/shop; use --dry-run, or keep the workloads in files of their own\n',
    ],
    [
      'a label of another set',
      `${ROUTE}labels: {apply-set: bank}\n`,
      ['--set', 'shop'],
      'route default/shop: the manifest has the label apply-set=bank, and --set is shop; remove the label\n',
    ],
    [
      'a rule without a service',
      ROUTE.replace('service: web, ', ''),
      [],
      'a.yaml:5:11: spec.rules[0].service: is required\n',
    ],
  ])('refuses %s', async (_title, text, flags, message) => {
    const { calls, options } = aCluster();
    const result = await apply(text, options, ...flags);
    expect(result).toMatchObject({ exitCode: 2, stdout: '' });
    expect(result.stderr).toContain(message);
    expect(calls).toEqual([]);
  });

  it('deletes routes that left the set before new ones, and their services last', async () => {
    const old = aRoute('old', { labels: { 'apply-set': 'shop' } });
    const other = aRoute('other', { labels: { 'apply-set': 'bank' } });
    const { calls, routes, options } = aCluster([old, other]);
    const flags = ['--set', 'shop', '--prune'];
    const asked = await apply(ALL, { ...options, ...anInteractiveTerminal('n\n') }, ...flags);
    expect(asked.stderr).toContain('Apply, and delete 1 service and 1 route? [y/N]');
    expect(calls).toEqual([]);
    const { stdout } = await apply(ALL, options, ...flags);
    expect(stdout).toMatch(/route default\/old: delete\nroute default\/shop: create\n/);
    expect(calls).toEqual([
      ...['create service web', 'execute workloads'],
      ...['delete route old', 'create route shop', 'delete service old'],
    ]);
    expect(routes.get('shop')?.labels).toEqual({ 'apply-set': 'shop' });
    expect([...routes.keys()]).toEqual(['other', 'shop']);
  });
});

describe('delete -f with routes', () => {
  const files = { 'a.yaml': ALL };

  it('deletes the route, then the workload, then the service', async () => {
    const { calls, options } = aCluster([aRoute('shop')]);
    const result = await runCli(['delete', '-f', 'a.yaml', '--yes'], { ...options, files });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(result.stdout).toMatch(/^route default\/shop: deleted\n/);
    expect(calls).toEqual(['delete route shop', 'delete workload web', 'delete service web']);
  });

  it('asks with the numbers of all kinds, and only shows with --dry-run', async () => {
    const { calls, options } = aCluster([aRoute('shop')]);
    const terminal = anInteractiveTerminal('n\n');
    const asked = await runCli(['delete', '-f', 'a.yaml'], { ...options, files, ...terminal });
    expect(asked.stderr).toContain('Delete 1 workload and 1 service and 1 route? [y/N]');
    const shown = await runCli(['delete', '-f', 'a.yaml', '--dry-run'], { ...options, files });
    expect(shown.stdout).toContain('route default/shop: delete\n');
    expect(calls).toEqual([]);
  });

  it('reports a route that does not exist, unless --ignore-not-found', async () => {
    const { options } = aCluster();
    const only = { ...options, files: { 'a.yaml': ROUTE } };
    expect((await runCli(['delete', '-f', 'a.yaml', '--yes'], only)).exitCode).toBe(3);
    const ignored = ['delete', '-f', 'a.yaml', '--yes', '--ignore-not-found'];
    expect(await runCli(ignored, only)).toMatchObject({
      ...{ exitCode: 0, stdout: 'route default/shop: not found\n' },
    });
  });
});
