import type { ListWorkloadsRequest, Workload } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';

/** Workloads of one page. The API allows 1000; smaller pages keep each response small. */
const PAGE_SIZE = 500;
/** Workloads of one page with their replicas, of which there may be thousands. */
const PAGE_SIZE_WITH_REPLICAS = 50;

/** Returns the workloads of all pages of a list. */
export async function listAllWorkloads(
  session: CliSession,
  filter: Partial<Omit<ListWorkloadsRequest, '$typeName' | 'pageSize' | 'pageToken'>>,
): Promise<readonly Workload[]> {
  const pageSize = filter.includeReplicas === true ? PAGE_SIZE_WITH_REPLICAS : PAGE_SIZE;
  const workloads: Workload[] = [];
  let pageToken = '';
  do {
    const page = await session.client.listWorkloads(
      { ...filter, pageSize, pageToken },
      session.getCallOptions(),
    );
    workloads.push(...page.workloads);
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  return workloads;
}
