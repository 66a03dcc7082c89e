// Shows the description that the service has beside this page.
const ui = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#description",
  deepLinking: true,
  displayRequestDuration: true,
  validatorUrl: null, // nothing is asked of other hosts
  onComplete: () => {
    document.title = ui.specSelectors.info().get("title") ?? document.title;
    document.documentElement.dataset.ready = "";
  },
});
