import type { HandlerContext } from '@connectrpc/connect';
import { ANONYMOUS_CALLER, type ApiCaller } from './caller.js';
import { CallLimit } from './call-limit.js';

const caller = (name: string): ApiCaller => ({
  ...ANONYMOUS_CALLER,
  principal: { kind: 'user', name: `user/${name}` } as ApiCaller['principal'],
});
const callers = new Map<unknown, ApiCaller>();
const contextOf = (name: string): Partial<HandlerContext> => {
  const context = {};
  callers.set(context, caller(name));
  return context;
};

function createLimit(): CallLimit {
  return new CallLimit(
    { getCaller: (context) => callers.get(context) ?? ANONYMOUS_CALLER },
    { most: 3, mostOfUser: 2, noun: 'simulations' },
  );
}

describe('CallLimit', () => {
  it('rejects a call of a user who has reached the limit of one user', () => {
    const limit = createLimit();
    const end = limit.begin(contextOf('ann'));
    limit.begin(contextOf('ann'));
    expect(() => limit.begin(contextOf('ann'))).toThrow(
      '2 of your simulations are running already; try again when one has ended',
    );
    end();
    end();
    limit.begin(contextOf('ann'));
    expect(() => limit.begin(contextOf('ann'))).toThrow('2 of your simulations');
  });

  it('rejects a call of any user at the limit of all clients', () => {
    const limit = createLimit();
    const ends = ['ann', 'ben', 'cid'].map((name) => limit.begin(contextOf(name)));
    expect(() => limit.begin(contextOf('dan'))).toThrow(
      '3 simulations are running already; try again when one has ended',
    );
    for (const end of ends) end();
    expect(() => limit.begin(contextOf('dan'))).not.toThrow();
  });

  it('limits clients without an identity only together', () => {
    const limit = createLimit();
    for (let call = 0; call < 3; call += 1) limit.begin({});
    expect(() => limit.begin({})).toThrow('3 simulations are running already');
  });
});
