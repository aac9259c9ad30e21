import { CoordinatorService } from '@cloudless/api';
import {
  CloudlessError,
  createSeededRandom,
  noMeter,
  silentLog,
  type Log,
  type Meter,
} from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
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

  it('counts the calls without a record, and reports few of many alike', async () => {
    const clock = new ManualClock();
    const counts: Record<string, number> = {};
    const meter: Meter = {
      ...noMeter,
      counter: ({ name }) => ({
        add: (amount = 1) => void (counts[name] = (counts[name] ?? 0) + amount),
        remove: () => undefined,
      }),
    };
    let reports = 0;
    const refusals = new RefusalLog({
      ...{ state: { isLeading: false } as ClusterState, clock, log: silentLog, meter },
      reportRefusal: () => {
        reports += 1;
        return Promise.reject(new Error('no leader'));
      },
    });
    const { getWorkload } = CoordinatorService.method;
    const refuse = (address: string): void =>
      refusals.record(
        getWorkload,
        address,
        new Headers(),
        new RefusedCallError('unknown token', 'INVALID_TOKEN', 'not valid'),
      );
    // A client in a loop, with an address of its own for each call.
    for (let call = 0; call < 1_000; call += 1) refuse(`2001:db8::${call}`);
    await clock.advance(10_000);
    refuse('2001:db8::1000');
    await clock.advance(0);
    expect(reports).toBe(21);
    expect(counts).toEqual({
      cloudless_calls_refused_total: 1_001,
      cloudless_refused_calls_unrecorded_total: 1_001,
    });
  });
});
