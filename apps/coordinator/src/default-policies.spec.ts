import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@connectrpc/connect';
import { CoordinatorService, PolicyService } from '@cloudless/api';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { silentLog } from '@cloudless/base';
import { parseCoordinatorConfig } from './config.js';
import { startCoordinator } from './coordinator.js';
import { connectHttp2 } from './testing/matrix-clients.js';

const privileged = { image: 'nginx:alpine', security: { privileged: true } };

describe('the policies of a new cluster', () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'coordinator-'));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  /** Starts a coordinator on the directory, and calls `run` with its clients. */
  async function withCoordinator(
    values: Readonly<Record<string, unknown>>,
    run: (clients: Clients) => Promise<void>,
  ): Promise<void> {
    const settings = { port: 0, opsPort: 0, state: 'lmdb', tls: 'off', ...values };
    const coordinator = await startCoordinator(
      parseCoordinatorConfig([{ source: 'test', values: settings }], join(directory, 'data')),
      {
        ...{ clock: systemClock, random: systemRandom, log: silentLog },
        ...{ hostname: 'test', pid: process.pid, version: '0.0.0-test' },
      },
    );
    const connection = connectHttp2(coordinator.url, {});
    try {
      await run({
        policies: createClient(PolicyService, connection.transport),
        workloads: createClient(CoordinatorService, connection.transport),
      });
    } finally {
      connection.close();
      await coordinator.close();
    }
  }

  it('are the default policies, which stay deleted after a restart', async () => {
    const [name, ...others] = [
      ...['default-capabilities', 'default-host-namespaces', 'default-privileged'],
    ];
    await withCoordinator({}, async ({ policies, workloads }) => {
      const stored = (await policies.listPolicies({})).policies;
      expect(stored.map((policy) => policy.name)).toEqual([name, ...others]);
      await expect(workloads.createWorkload({ name: 'web', spec: privileged })).rejects.toThrow(
        'policy "default-privileged"',
      );
      await policies.deletePolicy({ name: name ?? '' });
    });
    await withCoordinator({}, async ({ policies }) => {
      const stored = (await policies.listPolicies({})).policies;
      expect(stored.map((policy) => policy.name)).toEqual(others);
    });
  });

  it('are none with --default-policies off, also after a start without this flag', async () => {
    await withCoordinator({ defaultPolicies: 'off' }, async ({ workloads }) => {
      await workloads.createWorkload({ name: 'web', spec: privileged });
    });
    await withCoordinator({}, async ({ policies }) => {
      expect((await policies.listPolicies({})).policies).toEqual([]);
    });
  });
});

interface Clients {
  readonly policies: ReturnType<typeof createClient<typeof PolicyService>>;
  readonly workloads: ReturnType<typeof createClient<typeof CoordinatorService>>;
}
