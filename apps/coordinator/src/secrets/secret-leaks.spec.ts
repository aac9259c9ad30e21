import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@connectrpc/connect';
import { AdminService, CoordinatorService, SecretsService } from '@cloudless/api';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import type { Log } from '@cloudless/base';
import { createLeakSearch } from '@cloudless/identity/testing';
import { parseCoordinatorConfig } from '../config.js';
import { startCoordinator, type RunningCoordinator } from '../coordinator.js';
import { connectHttp2, type MatrixConnection } from '../testing/matrix-clients.js';

const CANARY = 'canary-7f3a9c51-value';

describe('values of secrets and texts of access tokens', () => {
  let directory: string;
  let coordinator: RunningCoordinator;
  let connection: MatrixConnection;
  const lines: string[] = [];
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'coordinator-'));
    const note = (message: string, fields?: object) =>
      void lines.push(`${message} ${JSON.stringify(fields ?? {}, replaceBigInt)}`);
    const log: Log = { debug: note, info: note, warn: note, error: note, child: () => log };
    const values = { port: 0, opsPort: 0, state: 'memory', tls: 'off' };
    coordinator = await startCoordinator(
      parseCoordinatorConfig([{ source: 'test', values }], directory),
      {
        ...{ clock: systemClock, random: systemRandom, log },
        ...{ hostname: 'test', pid: process.pid, version: '0.0.0-test' },
      },
    );
    connection = connectHttp2(coordinator.url, {});
  });
  afterAll(async () => {
    connection.close();
    await coordinator.close();
    await rm(directory, { recursive: true, force: true });
  });

  /** The places with one of the texts. */
  async function findLeaks(texts: readonly string[]): Promise<readonly string[]> {
    const hasLeaked = createLeakSearch(texts);
    const admin = createClient(AdminService, connection.transport);
    const collect = async (stream: AsyncIterable<{ readonly data: Uint8Array }>) => {
      const chunks: Uint8Array[] = [];
      for await (const { data } of stream) chunks.push(data);
      return Buffer.concat(chunks);
    };
    const metrics = await (await fetch(`${coordinator.opsUrl}/metrics`)).text();
    expect(metrics).toContain('cloudless_rpc_admitted_total');
    const places = {
      snapshot: await collect(admin.snapshot({})),
      backup: await collect(admin.backup({})),
      metrics,
      log: lines.join('\n'),
    };
    return Object.entries(places).flatMap(([place, content]) =>
      hasLeaked(content) ? [place] : [],
    );
  }

  it('are in no snapshot, backup, metric or log line of a coordinator', async () => {
    const client = createClient(SecretsService, connection.transport);
    const data = { k: new TextEncoder().encode(CANARY) };
    await client.createSecret({ name: 'db', data, audiences: ['ci', 'workload/*'] });
    const workloads = createClient(CoordinatorService, connection.transport);
    const spec = { command: ['serve'], secrets: [{ name: 'db', audience: 'ci' }] };
    await workloads.createWorkload({ name: 'web', spec });
    const { text: accessToken } = await client.generateAccessToken({ name: 'db', audience: 'ci' });
    const request = { name: 'db', audience: 'ci', accessToken };
    expect((await client.getSecret(request)).version).toBe(1);
    for (const refused of [
      request,
      { ...request, audience: accessToken },
      { ...request, name: accessToken },
      { ...request, accessToken: accessToken.repeat(3) },
    ])
      await expect(client.getSecret(refused)).rejects.toThrow();
    await client.validateAccessToken(request);
    await client.revokeAccessToken({ name: 'db', accessToken });
    const texts = [CANARY, accessToken.split('.')[2] ?? ''];
    expect(await findLeaks(texts)).toEqual([]);
    // The same search finds a value that is injected as a name, which snapshots show.
    await workloads.createWorkload({ name: CANARY, spec: { command: ['serve'] } });
    expect(await findLeaks(texts)).toEqual(expect.arrayContaining(['snapshot', 'backup']));
  });
});

const replaceBigInt = (_key: string, value: unknown): unknown =>
  typeof value === 'bigint' ? String(value) : value;
