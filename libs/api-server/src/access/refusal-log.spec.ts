import { CoordinatorService } from '@cloudless/api';
import { CloudlessError, createSeededRandom, noMeter, silentLog, type Log } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { openClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { RefusalLog } from './refusal-log.js';
import { RefusedCallError } from './refusal.js';
import { recordRefusedCalls } from './refused-calls.js';

describe('RefusalLog', () => {
  it('logs who was refused, and why, at a coordinator that cannot commit', async () => {
    const clock = new ManualClock();
    const store = createMemoryStateStore({ clock });
    const state = await openClusterState({
      ...{ store, clock, random: createSeededRandom(1), log: silentLog, holder: 'c2' },
      leadership: 'follow',
    });
    const lines: unknown[] = [];
    const log: Log = { ...silentLog, warn: (message, fields) => void lines.push(message, fields) };
    const refusals = new RefusalLog({ state, clock, log, meter: noMeter });
    const reason = new RefusedCallError('no credentials', 'UNAUTHENTICATED', 'no credentials', {
      principal: 'user/eve',
    });
    expect(reason).toBeInstanceOf(CloudlessError);
    const { getWorkload } = CoordinatorService.method;
    refusals.record(getWorkload, '10.0.0.9', new Headers(), reason);
    await clock.advance(0);
    expect(lines).toEqual([
      'refused call not recorded',
      expect.objectContaining({
        rpc: 'GetWorkload',
        cause: 'no credentials',
        principal: 'user/eve',
        address: '10.0.0.9',
      }),
    ]);
    await state.close();
    await store.close();
  });

  it('leaves the audit record to the leader at a coordinator that follows', async () => {
    const clock = new ManualClock();
    const store = createMemoryStateStore({ clock });
    const open = (holder: string, leadership: 'follow' | 'takeAtStart') =>
      openClusterState({
        ...{ store, clock, random: createSeededRandom(1), log: silentLog, holder, leadership },
      });
    const leader = await open('c1', 'takeAtStart');
    const state = await open('c2', 'follow');
    const refusals = new RefusalLog({
      ...{ state, clock, log: silentLog, meter: noMeter },
      reportRefusal: async (call) => void (await recordRefusedCalls(leader, [call])),
    });
    const reason = new RefusedCallError('revoked token', 'UNAUTHENTICATED', 'revoked', {
      ...{ principal: 'user/eve', credentialId: 'k3v9' },
    });
    const { getWorkload } = CoordinatorService.method;
    refusals.record(getWorkload, '10.0.0.9', new Headers(), reason);
    await clock.advance(100);
    const events = leader.view().events();
    expect(events).toMatchObject([
      {
        reason: 'GetWorkload',
        message: 'user/eve from 10.0.0.9 called GetWorkload: unauthenticated (revoked token)',
        audit: { principal: 'user/eve', credentialId: 'k3v9', cause: 'revoked token' },
        count: 0,
      },
    ]);
    await Promise.all([leader.close(), state.close()]);
    await store.close();
  });
});
