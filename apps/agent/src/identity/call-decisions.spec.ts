import { describe, expect, it } from '@jest/globals';
import { create } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import { ManualClock, settle } from '@cloudless/base/testing';
import {
  AuthorizeAgentCallRequestSchema,
  AuthorizeAgentCallResponseSchema,
  type AuthorizeAgentCallResponse,
} from '@cloudless/api';
import { CallDecisions } from './call-decisions.js';

class Bed {
  readonly clock = new ManualClock();
  questions = 0;
  /** Questions about calls that run. */
  runningQuestions = 0;
  answer: () => Promise<AuthorizeAgentCallResponse> = () => this.reply(true);
  readonly decisions = new CallDecisions(this.clock, (_request, running) => {
    this.questions += 1;
    if (running) this.runningQuestions += 1;
    return this.answer();
  });

  async reply(allowed: boolean): Promise<AuthorizeAgentCallResponse> {
    const reason = allowed ? '' : 'user/ada has no role';
    return create(AuthorizeAgentCallResponseSchema, { allowed, principal: 'user/ada', reason });
  }

  require(key = 'a'): Promise<() => void> {
    return this.decisions.require(key, create(AuthorizeAgentCallRequestSchema));
  }

  /** A call about which the coordinator is asked by itself. */
  requireOwn(): Promise<() => void> {
    return this.decisions.require('a', create(AuthorizeAgentCallRequestSchema), { shared: false });
  }

  /** Lets seconds pass under an open call, whose check runs each second. */
  async follow(check: () => void, seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second += 1) {
      await this.clock.advance(1_000);
      check();
      await settle();
    }
  }
}

const unreachable = () => Promise.reject(new CloudlessError('unavailable', 'no session'));

describe('CallDecisions', () => {
  it('asks once for equal calls within 5 s, also while the answer is on its way', async () => {
    const bed = new Bed();
    await Promise.all([bed.require(), bed.require()]);
    await bed.clock.advance(4_900);
    await bed.require();
    expect(bed.questions).toBe(1);
    await bed.require('b');
    await bed.clock.advance(200);
    await bed.require();
    expect(bed.questions).toBe(3);
  });

  it('asks about each call that shares no decision', async () => {
    const bed = new Bed();
    await Promise.all([bed.requireOwn(), bed.requireOwn()]);
    await bed.requireOwn();
    expect([bed.questions, bed.runningQuestions]).toEqual([3, 0]);
  });

  it('repeats a refusal for a second without a question', async () => {
    const bed = new Bed();
    bed.answer = () => bed.reply(false);
    for (let calls = 0; calls < 20; calls += 1) {
      await expect(bed.requireOwn()).rejects.toThrow('user/ada has no role');
      await bed.clock.advance(100);
    }
    expect(bed.questions).toBe(2);
  });

  it('refuses with the reason of the coordinator, and asks again after a second', async () => {
    const bed = new Bed();
    bed.answer = () => bed.reply(false);
    await expect(bed.require()).rejects.toMatchObject({
      kind: 'denied',
      message: 'user/ada has no role',
    });
    bed.answer = () => bed.reply(true);
    await bed.clock.advance(1_000);
    await bed.require();
  });

  it('refuses when no coordinator answers', async () => {
    const bed = new Bed();
    bed.answer = unreachable;
    await expect(bed.require()).rejects.toMatchObject({ kind: 'unavailable' });
  });

  it('keeps an open call while the coordinator confirms it', async () => {
    const bed = new Bed();
    await bed.follow(await bed.require(), 60);
    expect(bed.questions).toBeGreaterThan(10);
    expect(bed.questions).toBeLessThan(30);
    expect(bed.runningQuestions).toBe(bed.questions - 1);
  });

  it('ends an open call within 5 s after the role is gone', async () => {
    const bed = new Bed();
    const check = await bed.require();
    await bed.follow(check, 20);
    bed.answer = () => bed.reply(false);
    await expect(bed.follow(check, 5)).rejects.toThrow('user/ada has no role');
  });

  it('ends an open call 5 s after the last confirmation when no coordinator answers', async () => {
    const bed = new Bed();
    const check = await bed.require();
    bed.answer = unreachable;
    await bed.follow(check, 4);
    await expect(bed.follow(check, 1)).rejects.toMatchObject({ kind: 'unavailable' });
  });

  it('ends an open call when an answer never comes', async () => {
    const bed = new Bed();
    const check = await bed.require();
    bed.answer = () => new Promise(() => undefined);
    await expect(bed.follow(check, 6)).rejects.toThrow('no coordinator has confirmed this call');
  });

  it('keeps a bounded number of decisions', async () => {
    const bed = new Bed();
    for (let key = 0; key < 1_500; key += 1) await bed.require(String(key));
    await bed.require('1499');
    await bed.require('0');
    expect(bed.questions).toBe(1_501);
  });
});
