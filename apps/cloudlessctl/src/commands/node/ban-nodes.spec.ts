import { create } from '@bufbuild/protobuf';
import { NodeBanSchema } from '@cloudless/api';
import { runCli } from '../../testing/run-cli.js';

const banNode = ({ nodeId, reason }: { nodeId: string; reason: string }) =>
  create(NodeBanSchema, { nodeId, reason, bannedBy: 'user/ada' });

describe('cloudlessctl node ban', () => {
  it('bans several nodes and prints a line for each', async () => {
    const words = 'node ban web1 web2 --reason stolen'.split(' ');
    expect(await runCli(words, { identities: { banNode } })).toMatchObject({
      exitCode: 0,
      stdout:
        'node web1: banned; its connections end within 5s, and its replicas are replaced when its lease ends\n' +
        'node web2: banned; its connections end within 5s, and its replicas are replaced when its lease ends\n',
    });
  });

  it('prints one ban as an object with -o json', async () => {
    const words = 'node ban web1 --reason stolen -o json'.split(' ');
    const { stdout } = await runCli(words, { identities: { banNode } });
    expect(JSON.parse(stdout)).toMatchObject({ nodeId: 'web1', reason: 'stolen' });
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
