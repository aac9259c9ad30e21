import { create } from '@bufbuild/protobuf';
import {
  ConfigSchema,
  PlanSchema,
  RouteSchema,
  ServiceSchema,
  WorkloadPlan_Action as Action,
} from '@cloudless/api';
import { aWorkload, runCli, type CliOptions } from '../../testing/run-cli.js';
import { findStaleReason } from './check-generation.js';

const MANIFEST = (generation: string): string =>
  `namespace: shop\nname: web\n${generation}spec: {image: nginx}\n`;

/** Creates a cluster whose workloads have generation 3, and become what each plan says. */
function aCluster(action = Action.UPDATE) {
  const calls: string[] = [];
  const options: CliOptions = {
    coordinator: {
      createPlan: ({ changes, validateOnly }) => {
        calls.push(validateOnly ? 'predict' : 'store plan');
        const workloads = changes.map(({ change }) => ({
          ...{ namespace: 'shop', action, generation: 3n },
          name: (change.value as { name: string }).name,
        }));
        return create(PlanSchema, { id: '0123456789abcdef', changes, workloads });
      },
      executePlan: () => {
        calls.push('execute');
        return { workloads: [aWorkload({ namespace: 'shop', name: 'web', generation: 4n })] };
      },
      getWorkload: ({ namespace, name }) => aWorkload({ namespace, name }),
    },
  };
  const apply = (text: string, ...flags: string[]) =>
    runCli(['apply', '-f', 'a.yaml', ...flags], { ...options, files: { 'a.yaml': text } });
  return { calls, apply };
}

describe('apply of a manifest with a generation', () => {
  it.each([{ flags: [] }, { flags: ['--dry-run'] }, { flags: ['--plan'] }])(
    'refuses a manifest that would overwrite newer changes, with flags $flags',
    async ({ flags }) => {
      const { calls, apply } = aCluster();
      expect(await apply(MANIFEST('generation: "1"\n'), ...flags)).toMatchObject({
        exitCode: 4,
        stdout: '',
        stderr:
          'cloudlessctl: nothing was applied:\nworkload shop/web: the manifest has generation 1, and the object in the cluster has generation 3: applying it would overwrite newer changes. Print the current object with "cloudlessctl get workloads shop/web -o yaml" and edit it, or remove the line "generation" to overwrite the newer changes\n',
      });
      expect(calls).toEqual(['predict']);
    },
  );

  it('names every stale manifest', async () => {
    const { apply } = aCluster();
    const text = `${MANIFEST('generation: 1\n')}---\n${MANIFEST('generation: "2"\n').replace('web', 'api')}`;
    const { stderr } = await apply(text);
    expect(stderr.match(/workload shop\/\w+: the manifest has generation \d/g)).toEqual([
      'workload shop/web: the manifest has generation 1',
      'workload shop/api: the manifest has generation 2',
    ]);
  });

  it.each([
    { name: 'the present generation', generation: 'generation: "3"\n' },
    { name: 'a newer generation, as after a restored backup', generation: 'generation: 7\n' },
    { name: 'no generation', generation: '' },
  ])('applies a manifest with $name', async ({ generation }) => {
    const { calls, apply } = aCluster();
    expect(await apply(MANIFEST(generation))).toMatchObject({ exitCode: 0, stderr: '' });
    expect(calls).toEqual(['predict', 'store plan', 'execute']);
  });

  it('leaves a workload unchanged when an older manifest changes nothing', async () => {
    const { calls, apply } = aCluster(Action.NOTHING);
    expect(await apply(MANIFEST('generation: "1"\n'))).toMatchObject({
      exitCode: 0,
      stdout: 'workload shop/web: unchanged\n',
    });
    expect(calls).toEqual(['predict']);
  });

  it.each([
    { value: 'one', got: 'the string "one"' },
    { value: '-1', got: 'the number -1' },
    { value: '{}', got: 'a map' },
  ])('refuses generation: $value', async ({ value, got }) => {
    const { apply } = aCluster();
    const { exitCode, stderr } = await apply(MANIFEST(`generation: ${value}\n`));
    expect(exitCode).toBe(2);
    expect(stderr).toContain(
      `generation: expected the whole number that "-o yaml" prints, got ${got}`,
    );
  });

  const id = { namespace: 'default', name: 'web', generation: 3n };
  it.each([
    {
      kind: 'service',
      text: 'kind: Service\nname: web\ngeneration: "2"\nspec: {workload: web, ports: [{port: 81}]}\n',
    },
    {
      kind: 'route',
      text: 'kind: Route\nname: web\ngeneration: "2"\nspec: {hosts: [b.example], rules: [{service: web, port: "80"}]}\n',
    },
    { kind: 'config', text: 'kind: Config\nname: web\ngeneration: "2"\ndata: {a: b}\n' },
  ])('refuses a stale manifest of a $kind before anything is changed', async ({ kind, text }) => {
    const options: CliOptions = {
      files: { 'a.yaml': text },
      network: {
        getService: () => create(ServiceSchema, { ...id, spec: { ports: [{ port: 80 }] } }),
        getRoute: () => create(RouteSchema, { ...id, spec: { hosts: ['a.example'] } }),
      },
      configs: {
        getConfig: () => create(ConfigSchema, { ...id, data: { a: new Uint8Array([1]) } }),
      },
      coordinator: { listWorkloads: () => ({ workloads: [] }) },
    };
    const { exitCode, stderr } = await runCli(['apply', '-f', 'a.yaml'], options);
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 4 });
    expect(stderr).toContain(
      `nothing was applied:\n${kind} default/web: the manifest has generation 2, and the object in the cluster has generation 3: applying it would overwrite newer changes. `,
    );
    expect(stderr).toContain(`"cloudlessctl ${kind} get default/web -o yaml"`);
  });
});

describe('findStaleReason', () => {
  it.each([
    { generation: undefined, current: 9n, isStale: false },
    { generation: 8n, current: 9n, isStale: true },
    { generation: 9n, current: 9n, isStale: false },
    { generation: 10n, current: 9n, isStale: false },
    { generation: 1n, current: 0n, isStale: false },
  ])('$generation against $current: stale is $isStale', ({ generation, current, isStale }) => {
    const change = { subject: 'workload a/b', fetchCommand: 'get', generation, current };
    expect(findStaleReason(change) !== undefined).toBe(isStale);
  });
});
