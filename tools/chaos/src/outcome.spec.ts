import { formatTable, summarise, type Outcome } from './outcome.js';

const outcome = (more: Partial<Outcome> = {}): Outcome => ({
  fault: 'kill-leader',
  target: 'c1',
  nextLeaderMs: 2_000,
  longestPauseMs: 2_100,
  recoveredMs: 500,
  acknowledged: 10,
  failedWrites: 2,
  answers: 100,
  failedRequests: 0,
  failedCodes: {},
  notes: [],
  violations: [],
  late: [],
  ...more,
});

describe('summarise', () => {
  it('has one row for each fault, with the 95th percentile of the time to the next leader', () => {
    const times = Array.from({ length: 20 }, (_, index) => (index + 1) * 100);
    const outcomes = [
      ...times.map((nextLeaderMs) => outcome({ nextLeaderMs })),
      outcome({ fault: 'kill-agent', nextLeaderMs: undefined, violations: ['r1 was restarted'] }),
    ];
    expect(summarise(outcomes)).toMatchObject([
      { fault: 'kill-leader', count: 20, nextLeaderP95Ms: 1_900, acknowledged: 200, violations: 0 },
      { fault: 'kill-agent', count: 1, nextLeaderP95Ms: undefined, violations: 1 },
    ]);
  });
});

describe('formatTable', () => {
  it('aligns the columns and shows a dash for what was not measured', () => {
    const rows = [outcome(), outcome({ fault: 'kill-agent', nextLeaderMs: undefined })];
    expect(formatTable(summarise(rows)).split('\n')).toEqual([
      'fault        times  next leader P50     P95     max  no write for  recovered  writes  failed calls  requests  failed  violations',
      'kill-leader      1           2.00 s  2.00 s  2.00 s        2.10 s     0.50 s      10             2       100       0           0',
      'kill-agent       1                -       -       -        2.10 s     0.50 s      10             2       100       0           0',
    ]);
  });
});
