import { Code, ConnectError } from '@connectrpc/connect';
import type { CliSession } from '../../call/cli-session.js';
import { resolveReplicaTarget } from './resolve-target.js';

const UID = '0123456789abcdef';

/** A session with the workloads `web` and `api-2`. */
function aSession(calls: string[] = []): CliSession {
  const getWorkload = ({ namespace, name }: { namespace: string; name: string }) => {
    calls.push(`${namespace}/${name}`);
    return name === 'web' || name === 'api-2'
      ? Promise.resolve({ uid: UID })
      : Promise.reject(new ConnectError('not found', Code.NotFound));
  };
  const session = {
    settings: { namespace: 'default' },
    client: { getWorkload },
    getCallOptions: () => ({}),
  };
  return session as unknown as CliSession;
}

const workload = (name: string, namespace = 'default') => ({
  kind: 'workload',
  workload: { namespace, name },
});
const replica = (replicaId: string) => ({ kind: 'replica', replicaId });

describe('resolveReplicaTarget', () => {
  it.each([
    ['a workload', 'web', workload('web'), []],
    ['a short name of a replica', 'web-1', replica(`${UID}-1`), ['default/web-1', 'default/web']],
    [
      'a short name with a namespace',
      'shop/web-12',
      replica(`${UID}-12`),
      ['shop/web-12', 'shop/web'],
    ],
    ['a workload whose name ends with a number', 'api-2', workload('api-2'), ['default/api-2']],
    ['no workload', 'none-3', workload('none-3'), ['default/none-3', 'default/none']],
    ['a replica id', `${UID}-4`, replica(`${UID}-4`), []],
    ['a replica id after its kind', `replica/${UID}-4`, replica(`${UID}-4`), []],
    [
      'a container id after its kind',
      'container/0123456789ab',
      { kind: 'container', containerId: '0123456789ab' },
      [],
    ],
  ])('resolves %s: %s', async (_name, text, target, expectedCalls) => {
    const calls: string[] = [];
    expect(await resolveReplicaTarget(aSession(calls), text)).toEqual(target);
    expect(calls).toEqual(expectedCalls);
  });
});
