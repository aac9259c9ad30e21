import { create } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  ConfigSchema,
  PlanSchema,
  PolicySchema,
  RouteSchema,
  SecretSchema,
  ServiceSchema,
} from '@cloudless/api';
import { runCli, type CliOptions, type CliResult } from '../../testing/run-cli.js';

const id = { namespace: 'default', name: 'web' };
const PLAN_ID = '0123456789abcdef';

/** Creates a cluster with one object of each kind, and records the namespace of each list. */
function aCluster() {
  const namespaces: string[] = [];
  const record = <Result>(namespace: string, result: Result): Result => {
    namespaces.push(namespace);
    return result;
  };
  const service = create(ServiceSchema, { ...id, spec: { ports: [{ port: 80 }] } });
  const route = create(RouteSchema, { ...id, spec: { hosts: ['a.example'] } });
  const secret = create(SecretSchema, { ...id, version: 3 });
  const config = create(ConfigSchema, { ...id, data: { a: new Uint8Array([97]) } });
  const policy = create(PolicySchema, { name: 'web' });
  const plan = create(PlanSchema, { id: PLAN_ID });
  const options: CliOptions = {
    network: {
      listServices: ({ namespace }) => record(namespace, { services: [service] }),
      getService: () => service,
      listEndpoints: () => ({ endpoints: [] }),
      listRoutes: ({ namespace }) => record(namespace, { routes: [route] }),
      getRoute: () => route,
    },
    secrets: {
      listSecrets: ({ namespace }) => record(namespace, { secrets: [secret] }),
      getSecret: () => ({ secret, accessTokens: [] }),
    },
    configs: {
      listConfigs: ({ namespace }) => record(namespace, { configs: [config] }),
      getConfig: () => config,
    },
    policies: {
      listPolicies: ({ namespace }) => record(namespace, { policies: [policy] }),
      getPolicy: () => policy,
    },
    coordinator: {
      listPlans: () => ({ plans: [{ id: PLAN_ID, summary: 'scale web' }] }),
      getPlan: ({ id: planId }) => {
        if (planId !== PLAN_ID) throw new ConnectError('no such plan', Code.NotFound);
        return plan;
      },
      listWorkloads: () => ({ workloads: [] }),
    },
  };
  const run = (line: string): Promise<CliResult> => runCli(line.split(' '), options);
  return { namespaces, run };
}

const KINDS = [
  { group: 'service', words: ['services', 'service', 'svc'], name: 'web' },
  { group: 'route', words: ['routes', 'route', 'ing', 'ingress', 'ingresses'], name: 'web' },
  { group: 'secret', words: ['secrets', 'secret'], name: 'web' },
  { group: 'config', words: ['configs', 'config', 'cm', 'configmap', 'configmaps'], name: 'web' },
  { group: 'policy', words: ['policies', 'policy'], name: 'web' },
  { group: 'plan', words: ['plans', 'plan'], name: PLAN_ID },
] as const;

describe('get of a kind with a group of commands', () => {
  it.each(KINDS)('lists as "$group list" does, by each of $words', async ({ group, words }) => {
    const { run } = aCluster();
    for (const flags of ['', ' -o json', ' -o name', ' -o wide --no-headers']) {
      const listed = await run(`${group} list${flags}`);
      expect(listed).toMatchObject({ exitCode: 0, stderr: '' });
      expect(listed.stdout).toMatch(/web|0123456789abcdef/);
      for (const word of words) expect(await run(`get ${word}${flags}`)).toEqual(listed);
    }
  });

  it.each(KINDS)('shows a named $group as its own command does', async ({ group, words, name }) => {
    const { run } = aCluster();
    const [get, describe] = [group === 'plan' ? 'show' : 'get', 'describe'];
    for (const flags of ['', ' -o json']) {
      const shown = await run(`${group} ${get} ${name}${flags}`);
      expect(shown).toMatchObject({ exitCode: 0, stderr: '' });
      expect(await run(`get ${words[0]} ${name}${flags}`)).toEqual(shown);
      const hasDescription = group !== 'plan' && group !== 'policy';
      const details = hasDescription ? await run(`${group} ${describe} ${name}${flags}`) : shown;
      expect(details.exitCode).toBe(0);
      expect(await run(`describe ${words[1]} ${name}${flags}`)).toEqual(details);
    }
  });

  it.each(KINDS.filter(({ group }) => group !== 'plan'))(
    'lists the $words of one namespace, or of all with -A',
    async ({ words }) => {
      const { namespaces, run } = aCluster();
      await run(`get ${words[0]} -n shop`);
      await run(`get ${words[0]} -A`);
      expect(namespaces).toEqual(['shop', '']);
    },
  );

  it('refuses options that the kind does not have', async () => {
    const { run } = aCluster();
    expect((await run('get services --watch')).stderr).toBe(
      'cloudlessctl: --watch applies to workloads, nodes, replicas and events, not to services\n',
    );
    expect((await run('get policies -l a=b')).exitCode).toBe(2);
    expect((await run(`get plans ${PLAN_ID} ${PLAN_ID}`)).stderr).toBe(
      'cloudlessctl: plans are shown one at a time: give one id, or none to list them\n',
    );
  });

  it.each([
    ['services', 'web'],
    ['routes', 'web'],
    ['secrets', 'web'],
    ['configs', 'web'],
    ['policies', 'web'],
    ['plans', PLAN_ID],
  ])('completes the names of %s', async (kind, name) => {
    const { run } = aCluster();
    expect((await run(`__complete -- get ${kind} ${name.slice(0, 1)}`)).stdout).toContain(name);
    expect((await run(`__complete -- describe ${kind} ${name.slice(0, 1)}`)).stdout).toContain(
      name,
    );
    expect((await run(`__complete -- get ${kind.slice(0, 3)}`)).stdout).toContain(kind);
    expect((await run(`__complete -- describe ${kind.slice(0, 3)}`)).stdout).toContain(kind);
  });
});
