import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@connectrpc/connect';
import { CoordinatorService, SecretsService } from '@cloudless/api';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { silentLog } from '@cloudless/base';
import { parseCoordinatorConfig } from '../config.js';
import { startCoordinator } from '../coordinator.js';
import { connectHttp2 } from '../testing/matrix-clients.js';

const aSecret = {
  name: 'db',
  data: { password: new TextEncoder().encode('s3cret') },
  audiences: ['workload/*'],
};
/** Changes one key, so that the coordinator decrypts the values of the other one. */
const aChange = {
  ...{ name: 'db', keepOtherKeys: true },
  data: { user: new TextEncoder().encode('app') },
};

describe('the key-encryption key of a coordinator', () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'coordinator-'));
  });
  afterEach(() => rm(directory, { recursive: true, force: true }));

  const dataDir = () => join(directory, 'data');
  const keyFile = () => join(dataDir(), 'identity', 'secrets-key');

  /** Starts a coordinator on the directory, and calls `run` with its clients. */
  async function withCoordinator(
    values: Readonly<Record<string, unknown>>,
    run: (clients: Clients) => Promise<void>,
    machine: { readonly secretsKey?: string; readonly secretsPassphrase?: string } = {},
  ): Promise<void> {
    const settings = { port: 0, opsPort: 0, state: 'lmdb', tls: 'off', ...values };
    const coordinator = await startCoordinator(
      parseCoordinatorConfig([{ source: 'test', values: settings }], dataDir()),
      {
        ...{ clock: systemClock, random: systemRandom, log: silentLog },
        ...{ hostname: 'test', pid: process.pid, version: '0.0.0-test' },
        ...machine,
      },
    );
    const connection = connectHttp2(coordinator.url, {});
    try {
      await run({
        secrets: createClient(SecretsService, connection.transport),
        workloads: createClient(CoordinatorService, connection.transport),
      });
    } finally {
      connection.close();
      await coordinator.close();
    }
  }

  it('is created at the first start and found at the next', async () => {
    await withCoordinator({}, async ({ secrets }) => void (await secrets.createSecret(aSecret)));
    await withCoordinator({}, async ({ secrets }) => {
      expect(await secrets.updateSecret(aChange)).toMatchObject({ version: 2 });
    });
  });

  it('is not created anew for a restored state: secrets are refused, everything else runs', async () => {
    await withCoordinator({}, async ({ secrets }) => void (await secrets.createSecret(aSecret)));
    const backup = join(directory, 'key-backup');
    await cp(keyFile(), backup);
    await rm(keyFile());
    await withCoordinator({}, async ({ secrets, workloads }) => {
      await expect(secrets.getSecret({ name: 'db' })).rejects.toThrow(
        '[failed_precondition] the key-encryption key of the cluster is missing',
      );
      await workloads.createWorkload({ name: 'web', spec: { command: ['serve'], replicas: 1 } });
    });
    await withCoordinator({ secretsKeyFile: backup }, async ({ secrets }) => {
      expect(await secrets.updateSecret(aChange)).toMatchObject({ version: 2 });
    });
  });

  it('is refused when it is not the key of the cluster, with the id of the right key', async () => {
    await withCoordinator({}, async ({ secrets }) => void (await secrets.createSecret(aSecret)));
    const other = { secretsKey: 'ab'.repeat(32) };
    const refuse = async ({ secrets }: Clients): Promise<void> => {
      await expect(secrets.listSecrets({})).rejects.toThrow(
        'is not the key that encrypts the secrets of the cluster',
      );
    };
    await withCoordinator({}, refuse, other);
  });

  it('replaces the former key at a start that names both, and later starts need only the new key', async () => {
    await withCoordinator({}, async ({ secrets }) => void (await secrets.createSecret(aSecret)));
    const next = { secretsKey: 'cd'.repeat(32) };
    await withCoordinator(
      { secretsPreviousKeyFile: keyFile() },
      async ({ secrets }) => {
        expect((await secrets.getSecret({ name: 'db' })).secret?.version).toBe(1);
      },
      next,
    );
    await rm(keyFile());
    const change = async ({ secrets }: Clients): Promise<void> => {
      expect(await secrets.updateSecret(aChange)).toMatchObject({ version: 2 });
    };
    await withCoordinator({}, change, next);
  });

  it('is derived from a passphrase of a file', async () => {
    const secretsPassphraseFile = join(directory, 'passphrase');
    await writeFile(secretsPassphraseFile, 'correct horse battery staple\n', { mode: 0o600 });
    const settings = { secretsPassphraseFile };
    await withCoordinator(
      settings,
      async ({ secrets }) => void (await secrets.createSecret(aSecret)),
    );
    await withCoordinator(settings, async ({ secrets }) => {
      expect(await secrets.updateSecret(aChange)).toMatchObject({ version: 2 });
    });
  });

  it('is refused when its file has no key, without showing the content', async () => {
    const secretsKeyFile = join(directory, 'key');
    await writeFile(secretsKeyFile, 'canary-of-a-key', { mode: 0o600 });
    const start = withCoordinator({ secretsKeyFile }, async () => undefined);
    await expect(start).rejects.toThrow('is not 32 bytes in hex or base64');
    await expect(start).rejects.not.toThrow('canary');
  });
});

interface Clients {
  readonly secrets: ReturnType<typeof createClient<typeof SecretsService>>;
  readonly workloads: ReturnType<typeof createClient<typeof CoordinatorService>>;
}
