import { judge, measurePercent, type TrafficRequest } from './verdict.js';

const aRequest = (more: Partial<TrafficRequest> = {}): TrafficRequest => ({
  kind: 'new',
  sentAtMs: 10_000,
  tookMs: 15,
  version: '1',
  replica: 'a',
  before: '',
  broken: '',
  reason: '',
  ...more,
});
const aFailure = (more: Partial<TrafficRequest> = {}): TrafficRequest =>
  aRequest({ version: '', replica: '', reason: 'ECONNRESET', ...more });

describe('judge', () => {
  it('allows no failure and no slow answer without a fault', () => {
    const requests = [aRequest(), aFailure(), aRequest({ tookMs: 1_001 })];
    expect(judge(requests, {}, true)).toMatchObject({
      requests: 3,
      failedNew: 1,
      failedKept: 0,
      slow: 1,
      slowestMs: 1_001,
      violations: [expect.stringMatching(/^2 requests failed or were slow without a reason: new/)],
    });
    const untimed = judge([aRequest({ tookMs: 1_001 })], {}, false);
    expect(untimed).toMatchObject({ slow: 1, violations: [] });
  });

  it('counts a request that the client did not send, as a failure only when times are judged', () => {
    const requests = [aRequest(), aFailure({ kind: 'kept', tookMs: 0, reason: 'not sent' })];
    const counts = { requests: 1, notSent: 1, failedKept: 0, violations: [] };
    expect(judge(requests, {}, false)).toMatchObject(counts);
    const timed = judge(requests, {}, true);
    expect(timed).toMatchObject({ requests: 2, notSent: 1, failedKept: 1 });
    expect(timed.violations).toHaveLength(1);
  });

  it('counts a repeated request that was answered apart', () => {
    const repeated = aRequest({ kind: 'kept', before: 'a', broken: 'ECONNRESET' });
    expect(judge([repeated], {}, true)).toMatchObject({
      repeated: 1,
      failedKept: 0,
      violations: [],
    });
    const failed = aFailure({ kind: 'kept', before: 'a', broken: 'ECONNRESET' });
    expect(judge([failed], {}, true)).toMatchObject({ repeated: 0, failedKept: 1 });
  });

  it.each([
    { title: 'on the way during the fault', sentAtMs: 9_990, tookMs: 15, violations: 0 },
    { title: 'sent within a second', sentAtMs: 10_999, tookMs: 5, violations: 0 },
    { title: 'that ended before the fault', sentAtMs: 9_900, tookMs: 5, violations: 1 },
    { title: 'sent more than a second later', sentAtMs: 11_001, tookMs: 5, violations: 1 },
  ])('finds $violations violations in a failure $title', ({ violations, ...times }) => {
    const verdict = judge([aFailure(times)], { brokenAtMs: 10_000 }, true);
    expect(verdict.violations).toHaveLength(violations);
    expect(verdict.recoveredMs).toBe(Math.max(0, times.sentAtMs - 10_000));
  });

  it('refuses a break of a connection to a replica that the fault left alone', () => {
    const broken = [
      aRequest({ kind: 'kept', before: 'hit', broken: 'EPIPE' }),
      aRequest({ kind: 'kept', before: 'other', broken: 'EPIPE' }),
    ];
    const endsReplica = (replica: string): boolean => replica === 'hit';
    const { violations } = judge(broken, { brokenAtMs: 10_000, endsReplica }, true);
    expect(violations).toEqual([
      expect.stringMatching(/^1 requests .* a replica that was not hit: kept at 0 ms: EPIPE/),
    ]);
  });

  it('refuses such a break also in an event without a fault', () => {
    const broken = ['ended', 'running'].map((before) =>
      aRequest({ kind: 'kept', before, broken: 'ECONNRESET' }),
    );
    const endsReplica = (replica: string): boolean => replica === 'ended';
    expect(judge(broken, { endsReplica }, true).violations).toEqual([
      expect.stringMatching(/^1 requests .* a replica that was not hit: kept at 0 ms: ECONNRESET/),
    ]);
    expect(judge(broken, {}, true).violations).toEqual([]);
  });

  it('refuses a client that sent nothing', () => {
    expect(judge([], {}, true).violations).toEqual(['the client sent no request']);
  });
});

describe('measurePercent', () => {
  it('counts answers to requests over new connections within the period', () => {
    const requests = [
      aRequest({ version: '2' }),
      aRequest(),
      aRequest(),
      aRequest(),
      aFailure(),
      aRequest({ kind: 'kept', version: '2' }),
      aRequest({ version: '2', sentAtMs: 20_000 }),
    ];
    expect(measurePercent(requests, '2', 10_000, 20_000)).toBe(25);
    expect(measurePercent([], '2', 0, 1)).toBe(0);
  });
});
