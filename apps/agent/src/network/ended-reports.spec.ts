import { encodeLine, MAX_REQUEST_BYTES } from './control-messages.js';
import { EndedReports } from './ended-reports.js';

describe('reports of ended replicas to the network proxy', () => {
  const begin = () => {
    const reports = new EndedReports();
    const sent: string[][] = [];
    const connect = (): void =>
      reports.connect(async ({ replicaIds }) => void sent.push([...replicaIds]));
    return { reports, sent, connect };
  };

  it('are sent once to a connected proxy', () => {
    const { reports, sent, connect } = begin();
    connect();
    reports.note(['r1', 'r2']);
    reports.note(['r2']);
    expect(sent).toEqual([['r1', 'r2']]);
  });

  it('reach a proxy that was not connected at the time, and each later proxy', () => {
    const { reports, sent, connect } = begin();
    reports.note(['r1']);
    connect();
    reports.disconnect();
    reports.note(['r2']);
    connect();
    expect(sent).toEqual([['r1'], ['r1', 'r2']]);
  });

  it('fit into the lines of the control socket, however many there are', () => {
    const { reports, sent, connect } = begin();
    reports.note(Array.from({ length: 20_000 }, (_, index) => `${index}`.padStart(36, 'r')));
    connect();
    expect(sent.flat()).toHaveLength(10_000);
    expect(sent.at(-1)?.at(-1)).toMatch(/19999$/);
    for (const replicaIds of sent)
      expect(encodeLine({ type: 'ended', id: 1_000_000, replicaIds }).length).toBeLessThan(
        MAX_REQUEST_BYTES,
      );
  });
});
