/** Objects of one page: a full page is still a small response. */
export const PAGE_SIZE = 500;

/** Request fields of one page of a list. */
export interface PageRequest {
  readonly pageSize: number;
  readonly pageToken: string;
}

/** Reads all pages of a list. */
export async function listAllPages<Page extends { readonly nextPageToken: string }, Item>(
  readPage: (request: PageRequest) => Promise<Page>,
  getItems: (page: Page) => readonly Item[],
): Promise<readonly Item[]> {
  const items: Item[] = [];
  let pageToken = '';
  do {
    const page = await readPage({ pageSize: PAGE_SIZE, pageToken });
    items.push(...getItems(page));
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  return items;
}
