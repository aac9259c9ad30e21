import { create } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { NodeBanSchema } from '@cloudless/api';
import { aNode, runCli } from '../../testing/run-cli.js';
import type { CliResult } from '../../testing/run-cli.js';

const banNode = ({ nodeId, reason }: { nodeId: string; reason: string }) =>
  create(NodeBanSchema, { nodeId, reason, bannedBy: 'user/ada' });

const coordinator = {
  getNode: ({ nodeId }: { nodeId: string }) => {
    if (!['web1', 'web2'].includes(nodeId))
      throw new ConnectError(`node "${nodeId}" not found`, Code.NotFound);
    return aNode({ id: nodeId });
  },
  listNodes: () => ({ nodes: [aNode({ id: 'web1' }), aNode({ id: 'web2' })] }),
};

/** Runs `node ban` in a cluster with the nodes web1 and web2, and records the bans. */
async function runBan(...words: string[]): Promise<CliResult & { banned: readonly string[] }> {
  const banned: string[] = [];
  const identities = {
    banNode: (request: { nodeId: string; reason: string }) => {
      banned.push(request.nodeId);
      return banNode(request);
    },
  };
  return { ...(await runCli(['node', 'ban', ...words], { coordinator, identities })), banned };
}

describe('cloudlessctl node ban', () => {
  it('bans several nodes, prints a line for each, and says that a join token is still good', async () => {
    expect(await runBan('web1', 'web2', '--reason', 'stolen')).toMatchObject({
      exitCode: 0,
      stdout:
        'node web1: banned; its connections end within 5s, and its replicas are replaced when its lease ends\n' +
        'node web2: banned; its connections end within 5s, and its replicas are replaced when its lease ends\n',
      stderr:
        'the machine may join again under another name while its join token is valid; revoke the join token it knows: cloudlessctl token list, cloudlessctl token revoke ID\n',
    });
  });

  it('prints one ban as an object with -o json', async () => {
    const { stdout } = await runBan('web1', '--reason', 'stolen', '-o', 'json');
    expect(JSON.parse(stdout)).toMatchObject({ nodeId: 'web1', reason: 'stolen' });
  });

  it.each([
    { nodeId: 'wbe1', problem: `node "wbe1" not found; did you mean web1?` },
    { nodeId: 'database', problem: 'node "database" not found (NOT_FOUND).' },
  ])('bans nothing when the node $nodeId does not exist', async ({ nodeId, problem }) => {
    expect(await runBan(nodeId)).toMatchObject({
      exitCode: 3,
      banned: [],
      stdout: '',
      stderr: `cloudlessctl: ${problem} This name was not banned; to ban a node that was removed from the cluster already, give --removed\n`,
    });
  });

  it('bans the other nodes when one does not exist, and fails', async () => {
    expect(await runBan('wbe1', 'web2')).toMatchObject({ exitCode: 3, banned: ['web2'] });
  });

  it('bans a node that does not exist any more with --removed', async () => {
    expect(await runBan('database', '--removed')).toMatchObject({
      exitCode: 0,
      banned: ['database'],
    });
  });
});

describe('cloudlessctl node unban', () => {
  it.each([
    {
      removed: true,
      text: 'ban removed; the machine must join again: cloudlessctl node join-command',
    },
    { removed: false, text: 'was not banned' },
  ])('reports removed: $removed', async ({ removed, text }) => {
    const identities = { unbanNode: () => ({ removed }) };
    expect(await runCli(['node', 'unban', 'web1'], { identities })).toMatchObject({
      stdout: `node web1: ${text}\n`,
    });
  });
});

describe('cloudlessctl node bans', () => {
  it('reads all pages and prints the node ids for -o name', async () => {
    const identities = {
      listNodeBans: ({ pageToken }: { pageToken: string }) =>
        pageToken === ''
          ? { bans: [{ nodeId: 'web1' }], nextPageToken: 'more' }
          : { bans: [{ nodeId: 'web2' }] },
    };
    expect(await runCli(['node', 'bans', '-o', 'name'], { identities })).toMatchObject({
      stdout: 'web1\nweb2\n',
    });
  });
});
