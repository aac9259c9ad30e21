import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import { ManualClock } from '@cloudless/base/testing';
import {
  GetMasterKeyInfoResponseSchema,
  MasterKey_State as State,
  type GetMasterKeyInfoResponse,
  type RotateMasterKeyRequest,
} from '@cloudless/api';
import { anInteractiveTerminal } from '../../testing/terminal-answers.js';
import { NOW_MS, runCli, type CliOptions, type CliResult } from '../../testing/run-cli.js';

const keyInfo = (
  fields: Partial<Omit<GetMasterKeyInfoResponse, '$typeName'>> = {},
): GetMasterKeyInfoResponse =>
  create(GetMasterKeyInfoResponseSchema, {
    available: true,
    keys: [
      {
        ...{ id: 'k1', state: State.RETIRING, versionCount: 7n, provider: 'file' },
        ...{ keyEncryptionId: 'e1', createdAt: timestampFromMs(NOW_MS - 86_400_000 * 30) },
      },
      {
        ...{ id: 'k2', state: State.ACTIVE, versionCount: 3n, provider: 'file' },
        ...{ keyEncryptionId: 'e1', createdAt: timestampFromMs(NOW_MS - 60_000) },
      },
    ],
    ...fields,
  });
const done = { masterKeyId: 'k3', began: true, reEncrypted: 10n, remaining: 0n, deletedKeys: 2 };
const PROBLEM = 'start the coordinator with --secrets-key-file of the key e1';

describe('secret key-info', () => {
  it('shows the master keys and a rotation', async () => {
    const result = await runCli(['secret', 'key-info'], {
      secrets: { getMasterKeyInfo: () => keyInfo({ rotating: true, remaining: 7n }) },
    });
    expect(result).toMatchObject({ exitCode: 0, stderr: '' });
    expect(result.stdout).toBe(
      [
        'ID   STATE      VERSIONS   AGE   PROVIDER   ENCRYPTED WITH',
        'k1   Retiring   7          30d   file       e1',
        'k2   Active     3          60s   file       e1',
        '',
        'A rotation is under way: 7 versions left.',
        '',
      ].join('\n'),
    );
  });

  it('exits with 4 and the problem when the coordinator cannot decrypt the keys', async () => {
    const secrets = { getMasterKeyInfo: () => keyInfo({ available: false, problem: PROBLEM }) };
    const result = await runCli(['secret', 'key-info', '-o', 'json'], { secrets });
    expect(result).toMatchObject({
      exitCode: 4,
      stderr: `cloudlessctl: the coordinator that leads cannot decrypt the master keys, so no secret can be read or changed: ${PROBLEM}\n`,
    });
    expect(JSON.parse(result.stdout)).toMatchObject({ available: false, keys: [{ id: 'k1' }, {}] });
  });

  it('says so when there are no master keys', async () => {
    const result = await runCli(['secret', 'key-info'], {
      secrets: { getMasterKeyInfo: () => ({ available: true }) },
    });
    expect(result).toMatchObject({
      ...{ exitCode: 0, stdout: '', stderr: 'no master keys: the first secret creates one\n' },
    });
  });
});

/** Runs a command while the time passes, second by second, until the command has ended. */
async function runWithTime(argv: readonly string[], options: CliOptions): Promise<CliResult> {
  const clock = new ManualClock(NOW_MS);
  const running = runCli(argv, { ...options, clock });
  let isDone = false;
  void running.finally(() => (isDone = true));
  while (!isDone) await clock.advance(1_000);
  return running;
}

describe('secret rotate-key', () => {
  it.each([
    { flags: [], reEncryptAll: true },
    { flags: ['--keep-old-keys'], reEncryptAll: false },
  ])('encrypts all versions again unless told otherwise: $flags', async (row) => {
    const requests: RotateMasterKeyRequest[] = [];
    const result = await runCli(['secret', 'rotate-key', '--yes', ...row.flags], {
      secrets: {
        getMasterKeyInfo: () => keyInfo(),
        rotateMasterKey: (request) => (requests.push(request), done),
      },
    });
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: 'master key k3 is active: 10 versions encrypted again, 2 older keys deleted\n',
      stderr: '',
    });
    expect(requests).toMatchObject([
      { reEncryptAll: row.reEncryptAll, requestId: expect.stringMatching(/./) as string },
    ]);
  });

  it('refuses -o name before any call', async () => {
    const result = await runCli(['secret', 'rotate-key', '--yes', '-o', 'name']);
    expect(result).toMatchObject({ exitCode: 2, servers: [] });
    expect(result.stderr).toContain('the result of this command has no name');
  });

  it('explains what happens, asks on a terminal, and needs --yes elsewhere', async () => {
    const requests: RotateMasterKeyRequest[] = [];
    const secrets: NonNullable<CliOptions['secrets']> = {
      getMasterKeyInfo: () => keyInfo(),
      rotateMasterKey: (request) => (requests.push(request), done),
    };
    const refused = await runCli(['secret', 'rotate-key'], { secrets });
    expect(refused.exitCode).toBe(9);
    expect(refused.stderr).toBe(
      'cloudlessctl: the rotation is not confirmed: A new master key encrypts the secrets from now on. The 10 kept versions are encrypted again with the new key; then the older master keys are deleted. No value, version or workload changes. Confirm with --yes\n',
    );
    const answer = (text: string): Promise<CliResult> =>
      runCli(['secret', 'rotate-key'], { secrets, ...anInteractiveTerminal(text) });
    expect(await answer('n\n')).toMatchObject({ exitCode: 9 });
    expect(requests).toEqual([]);
    const accepted = await answer('y\n');
    expect(accepted.stderr).toContain('Rotate the master key? [y/N] ');
    expect(accepted.exitCode).toBe(0);
    expect(requests).toHaveLength(1);
  });

  it('says when the command only waits for a rotation that has begun before', async () => {
    const secrets = {
      getMasterKeyInfo: () => keyInfo({ rotating: true, remaining: 4n }),
      rotateMasterKey: () => ({ ...done, began: false, remaining: 2n }),
    };
    const result = await runCli(['secret', 'rotate-key'], {
      secrets,
      ...anInteractiveTerminal('y\n'),
    });
    expect(result.stderr).toContain(
      'A rotation is under way, with 4 versions left. The command begins no second rotation. Wait for its end? [y/N] ',
    );
    expect(result.stdout).toContain(
      '2 versions still encrypted with older keys (the rotation had begun before this command)\n',
    );
  });

  it('shows the progress, and calls again with the same request id when the leader goes away', async () => {
    const requests: RotateMasterKeyRequest[] = [];
    let remaining = 10n;
    let end = (_: typeof done): void => undefined;
    const ended = new Promise<typeof done>((resolve) => (end = resolve));
    const result = await runWithTime(['secret', 'rotate-key', '--yes', '-o', 'json'], {
      secrets: {
        getMasterKeyInfo: () => {
          remaining -= 2n;
          if (remaining === 0n) end(done);
          return keyInfo({ rotating: requests.length > 0, remaining });
        },
        rotateMasterKey: (request) => {
          requests.push(request);
          if (requests.length < 3) throw new ConnectError('the leader left', Code.Unavailable);
          return ended;
        },
      },
    });
    expect(result.exitCode).toBe(0);
    expect(JSON.parse(result.stdout)).toMatchObject({ masterKeyId: 'k3', reEncrypted: '10' });
    expect(new Set(requests.map(({ requestId }) => requestId)).size).toBe(1);
    expect(requests).toHaveLength(3);
    const lines = result.stderr.split('\n');
    expect(
      lines.filter((line) => line.includes('connection to the coordinator lost')),
    ).toHaveLength(1);
    expect(lines.filter((line) => line.startsWith('master key: '))).toEqual([
      'master key: 4 of 10 versions encrypted again',
      'master key: 6 of 10 versions encrypted again',
      'master key: 8 of 10 versions encrypted again',
      'master key: 10 of 10 versions encrypted again',
    ]);
  });

  it('exits with 6 when the time expires, and says that the rotation goes on', async () => {
    const result = await runWithTime(['secret', 'rotate-key', '--yes', '--timeout', '5s'], {
      secrets: {
        getMasterKeyInfo: () => keyInfo({ rotating: true, remaining: 9n }),
        rotateMasterKey: () => new Promise(() => undefined),
      },
    });
    expect(result.exitCode).toBe(6);
    expect(result.stderr).toContain(
      'the rotation has not ended within 5s and continues by itself; show its progress with: cloudlessctl secret key-info',
    );
  });

  it.each([
    {
      name: 'the keys are not available',
      secrets: { getMasterKeyInfo: () => keyInfo({ available: false, problem: PROBLEM }) },
      exitCode: 4,
      message: PROBLEM,
    },
    {
      name: 'the coordinator refuses the rotation',
      secrets: {
        getMasterKeyInfo: () => keyInfo(),
        rotateMasterKey: () => {
          throw new ConnectError('the role admin is needed', Code.PermissionDenied);
        },
      },
      exitCode: 1,
      message: 'the role admin is needed',
    },
  ])('exits with $exitCode when $name', async ({ secrets, exitCode, message }) => {
    const result = await runCli(['secret', 'rotate-key', '--yes'], { secrets });
    expect(result).toMatchObject({ exitCode, stdout: '' });
    expect(result.stderr).toContain(message);
  });
});
