import { Code, ConnectError } from '@connectrpc/connect';
import { CloudlessError } from '@cloudless/base';
import { fromConnectError, toConnectError } from './errors.js';
import { readLeaderHint, toLeaderMetadata } from './leader-hint.js';

describe('readLeaderHint', () => {
  const leader = { address: 'https://10.0.0.2:8080', id: 'two', epoch: 7n };
  const refusal = new CloudlessError('LEADERSHIP_LOST', 'coordinator one does not lead', {
    metadata: toLeaderMetadata(leader),
  });
  const hint = { address: 'https://10.0.0.2:8080', id: 'two', epoch: '7' };

  it.each([
    ['the error of a handler', refusal],
    ['the error that a client receives', toConnectError(refusal)],
    ['the error of a client, converted', fromConnectError(toConnectError(refusal))],
  ])('names the leader of %s', (_name, reason) => {
    expect(readLeaderHint(reason)).toEqual(hint);
  });

  it('is empty when the refusing coordinator knows no leader', () => {
    const unknown = new CloudlessError('LEADERSHIP_LOST', 'no coordinator leads', {
      metadata: toLeaderMetadata({ address: '', id: undefined }),
    });
    expect(readLeaderHint(toConnectError(unknown))).toEqual({});
  });

  it.each([
    ['another error', new CloudlessError('unavailable', 'away')],
    ['an error without details', new ConnectError('away', Code.Unavailable)],
    ['a value that is no error', 'away'],
  ])('is undefined for %s', (_name, reason) => {
    expect(readLeaderHint(reason)).toBeUndefined();
  });
});
