// From kill -9 of a replica's process until it is ready again, on real processes: 20 replicas, each killed once.
import { RealCluster, SERVER_COMMAND } from '@cloudless/e2e';
import { systemClock } from '@cloudless/system';
import { printReport, summarise } from './report.js';

const REPLICAS = 20;

const cluster = await RealCluster.start();
try {
  const spec = { command: SERVER_COMMAND, ports: [{ name: 'http', containerPort: 80 }], replicas: REPLICAS };
  await cluster.client.createWorkload({ name: 'web', spec });
  const { status } = await cluster.settled('web');
  const samples: number[] = [];
  for (const victim of status?.replicas ?? []) {
    const { pid } = await cluster.agentClient.getContainerStatus({ containerId: victim.containerId });
    const back = cluster.until(
      'web',
      (now) => now.status?.replicas.some(({ id, ready, restarts }) => id === victim.id && ready && restarts === 1) === true,
    );
    const began = systemClock.now();
    process.kill(pid, 'SIGKILL');
    await back;
    samples.push(systemClock.now() - began);
  }
  printReport('recovery', {
    unit: 'ms from kill -9 to ready',
    minReadyDuration: 'not included',
    replicas: REPLICAS,
    ...summarise(samples),
  });
} finally {
  await cluster.stop();
}
