import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { JoinTokenSchema } from '@cloudless/api';
import type { CreateJoinTokenRequest } from '@cloudless/api';
import { NOW_MS, USER_TOKEN, runCli } from '../../testing/run-cli.js';

const TEXT = `cl1.k3v9x0aq71bd.${'A'.repeat(43)}.${'ab'.repeat(32)}`;
const fields = {
  id: 'k3v9x0aq71bd',
  maxUses: 3,
  nodeIdPattern: 'edge-*',
  createdAt: timestampFromMs(NOW_MS),
  expiresAt: timestampFromMs(NOW_MS + 3_600_000),
};
const token = create(JoinTokenSchema, fields);

/** Runs a command line with a coordinator that creates {@link token}. */
async function runRecorded(argv: readonly string[]) {
  const requests: CreateJoinTokenRequest[] = [];
  const env = argv.includes('--server') ? { CLOUDLESS_TOKEN: USER_TOKEN } : {};
  const createJoinToken = (request: CreateJoinTokenRequest) => {
    requests.push(request);
    return { token, text: TEXT };
  };
  return { ...(await runCli(argv, { identities: { createJoinToken }, env })), requests };
}

describe('cloudlessctl token create', () => {
  it('sends every option and prints the text alone on standard output', async () => {
    const words =
      'token create --uses 3 --lifetime 1h --node-pattern edge-* --label site=berlin --label fast= --cidr 10.0.0.0/8 --cidr fd00::/8 --description rack';
    expect(await runRecorded(words.split(' '))).toMatchObject({
      exitCode: 0,
      stdout: `${TEXT}\n`,
      stderr:
        'join token k3v9x0aq71bd: 3 uses, nodes edge-*, expires 2026-01-01T01:00:00Z\nThe text is not shown again; keep it secret.\n',
      requests: [
        {
          maxUses: 3,
          lifetime: { seconds: 3600n },
          nodeIdPattern: 'edge-*',
          labels: { site: 'berlin', fast: '' },
          cidrs: ['10.0.0.0/8', 'fd00::/8'],
          description: 'rack',
        },
      ],
    });
  });

  it.each([
    { option: ['--uses', '0'], message: '--uses: must be at least 1' },
    { option: ['--label', '=x'], message: '--label: expected key=value, got "=x"' },
    { option: ['--lifetime', '0s'], message: '--lifetime: must be greater than zero' },
    { option: ['--ttl', '0s'], message: '--ttl: must be greater than zero' },
  ])('refuses $option with exit code 2', async ({ option, message }) => {
    expect(await runRecorded(['token', 'create', ...option])).toMatchObject({
      exitCode: 2,
      stderr: `cloudlessctl: ${message}\n`,
      requests: [],
    });
  });
});

describe('cloudlessctl token revoke', () => {
  it('names the nodes that have joined and stay', async () => {
    const used = create(JoinTokenSchema, { ...fields, uses: [{ nodeId: 'edge-1' }] });
    const identities = { revokeJoinToken: () => used };
    expect(await runCli(['token', 'revoke', token.id], { identities })).toMatchObject({
      exitCode: 0,
      stdout: 'join token k3v9x0aq71bd: revoked; the nodes that joined with it stay: edge-1\n',
    });
  });
});

describe('cloudlessctl node join-command', () => {
  const server = ['--server', 'https://cluster.example:8443'];

  it('creates a token and prints a command that has the token in no argument list', async () => {
    const result = await runRecorded(['node', 'join-command', '--uses', '3', ...server]);
    expect(result).toMatchObject({
      exitCode: 0,
      stdout: `printf %s ${TEXT} | cloudless-agent run --coordinator https://cluster.example:8443 --join-token-file -\n`,
      requests: [{ maxUses: 3 }],
    });
    expect(result.stderr).toContain(
      '  cloudless-agent run --coordinator https://cluster.example:8443 --join-token-file join-token\n',
    );
  });

  it('creates no token with --join-token-file', async () => {
    const words = ['node', 'join-command', '--join-token-file', 'my token', ...server];
    expect(await runRecorded(words)).toMatchObject({
      exitCode: 0,
      stdout:
        "cloudless-agent run --coordinator https://cluster.example:8443 --join-token-file 'my token'\n",
      requests: [],
      servers: [],
    });
  });

  it.each([
    {
      name: 'a plaintext address',
      words: [],
      message:
        'a machine joins over https only, and the address is http://127.0.0.1:8080; give the address with --coordinator https://HOST:PORT',
    },
    {
      name: 'an address that only this machine reaches',
      words: ['--server', 'https://127.0.0.1:8443'],
      message:
        'https://127.0.0.1:8443 is the address of this machine for itself; give the address that the new machine reaches with --coordinator https://HOST:PORT',
    },
    {
      name: 'an option of a new token beside an existing token',
      words: [...server, '--join-token-file', 'f', '--node-pattern', 'x'],
      message: '--join-token-file uses an existing token: remove --node-pattern',
    },
  ])('refuses $name with exit code 2', async ({ words, message }) => {
    expect(await runRecorded(['node', 'join-command', ...words])).toMatchObject({
      exitCode: 2,
      stderr: `cloudlessctl: ${message}\n`,
      requests: [],
    });
  });
});
