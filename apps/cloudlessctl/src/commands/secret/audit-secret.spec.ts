import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { SecretAuditEntrySchema, type GetSecretAuditLogRequest } from '@cloudless/api';
import { NOW_MS, runCli } from '../../testing/run-cli.js';

const anEntry = (fields: object): ReturnType<typeof create<typeof SecretAuditEntrySchema>> =>
  create(SecretAuditEntrySchema, {
    ...{ operation: 'GetSecret', principal: 'user/ada', result: 'ok', count: 1 },
    time: timestampFromMs(NOW_MS - 1_000),
    ...fields,
  });
/** Newest first, as the API returns them. */
const entries = [
  anEntry({
    ...{ result: 'permission_denied', cause: 'used up', tokenId: 't1', count: 4 },
    ...{ address: '10.0.0.7', audience: 'ci' },
  }),
  anEntry({
    ...{ operation: 'GetReplicaFiles', principal: 'node/web1', version: 2, replicaId: 'aa-1' },
    time: timestampFromMs(NOW_MS - 60_000),
  }),
];

describe('secret audit', () => {
  it('lists the newest entries, the newest last, with the cause of a refusal', async () => {
    const requests: GetSecretAuditLogRequest[] = [];
    const options = {
      secrets: {
        getSecretAuditLog: (request: GetSecretAuditLogRequest) => {
          requests.push(request);
          return { entries, nextPageToken: 'more' };
        },
      },
    };
    const argv = ['secret', 'audit', 'shop/db', '--since', '1h', '--limit', '2'];
    const result = await runCli(argv, options);
    expect(result).toMatchObject({
      exitCode: 0,
      stderr: 'there are older entries; show more with --limit\n',
    });
    expect(result.stdout).toBe(
      [
        'TIME                   OPERATION             PRINCIPAL   RESULT                       VERSION   VIA',
        '2025-12-31T23:59:00Z   GetReplicaFiles       node/web1   ok                           2         replica aa-1',
        '2025-12-31T23:59:59Z   GetSecret (4 times)   user/ada    permission_denied: used up   -         token t1',
        '',
      ].join('\n'),
    );
    expect(requests).toMatchObject([
      {
        ...{ namespace: 'shop', name: 'db', pageSize: 2 },
        since: timestampFromMs(NOW_MS - 3_600_000),
      },
    ]);
    const wide = await runCli([...argv, '-o', 'wide'], options);
    expect(wide.stdout).toMatch(/token t1 +10\.0\.0\.7 +ci/);
    const json = JSON.parse((await runCli([...argv, '-o', 'json'], options)).stdout) as unknown;
    expect(json).toMatchObject({ entries: [{ version: 2 }, { cause: 'used up', count: 4 }] });
  });

  it('reads as many pages as --limit needs', async () => {
    const sizes: number[] = [];
    const result = await runCli(['secret', 'audit', 'db', '--limit', '1200', '-o', 'json'], {
      secrets: {
        getSecretAuditLog: ({ pageSize, pageToken }) => {
          sizes.push(pageSize);
          const count = pageToken === '' ? 1_000 : 5;
          return {
            entries: Array.from({ length: count }, () => anEntry({})),
            nextPageToken: pageToken === '' ? 'second' : '',
          };
        },
      },
    });
    expect(sizes).toEqual([1_000, 200]);
    expect((JSON.parse(result.stdout) as { entries: unknown[] }).entries).toHaveLength(1_005);
  });

  it('says so when there are no entries', async () => {
    const result = await runCli(['secret', 'audit', 'db', '--since', '1h'], {
      secrets: { getSecretAuditLog: () => ({}) },
    });
    expect(result).toMatchObject({
      ...{ exitCode: 0, stdout: '' },
      stderr: 'no audit records of secret default/db since 1h\n',
    });
  });

  it.each([
    [['--limit', '0'], '--limit: must be at least 1'],
    [['--limit', 'all'], '--limit: expected a whole number, got "all"'],
    [['--since', 'soon'], '--since: expected a duration such as 10m or a time'],
  ])('refuses %j before any call', async (flags, message) => {
    const result = await runCli(['secret', 'audit', 'db', ...flags]);
    expect(result).toMatchObject({ exitCode: 2, servers: [] });
    expect(result.stderr).toContain(message);
  });
});
